package build_test

import (
	"context"
	"fmt"
	"os"

	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/build"
	"github.com/evalbox/evalbox/images/pull"
)

// Make an image of the shipped catalog unless the engine has it.
func ExampleEnsure() {
	cat, err := images.LoadCatalog(configs.Images(), "images.yaml")
	if err != nil {
		panic(err)
	}
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		panic(err)
	}
	defer api.Close()
	image, made, err := build.Ensure(context.Background(), api, cat, "debian", build.Options{
		Dockerfile: evalbox.DockerfileRunner, Pull: pull.Options{Progress: os.Stderr},
	})
	fmt.Println(image.ID, made, err)
}
