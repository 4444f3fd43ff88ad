package images_test

import (
	"context"
	"fmt"

	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/build"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/store"
)

// Make the default image of the shipped catalog unless it is there, lock it, and find it.
func Example() {
	ctx := context.Background()
	cat, err := images.LoadCatalog(configs.Images(), "images.yaml")
	if err != nil {
		panic(err)
	}
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		panic(err)
	}
	defer api.Close()
	if _, _, err := build.Ensure(ctx, api, cat, "", build.Options{Dockerfile: evalbox.DockerfileRunner}); err != nil {
		panic(err)
	}
	eng := store.Docker{APIClient: api}
	if _, err := lock.Settle(ctx, eng, cat, "images.lock", ""); err != nil {
		panic(err)
	}
	image, err := images.Resolve(ctx, eng, cat, "")
	if err != nil {
		panic(err)
	}
	fmt.Println(image.ID)
}

func ExampleLoadCatalog() {
	cat, err := images.LoadCatalog(configs.Images(), "images.yaml")
	if err != nil {
		panic(err)
	}
	entry, _ := cat.Lookup("")
	fmt.Println(cat.Names(), entry.Name, entry.Base)
	// Output: [cuda debian python] debian debian bookworm, 9 packages
}
