package store_test

import (
	"context"
	"fmt"

	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/store"
)

// List the packages of an image without running anything of it.
func ExampleDocker() {
	ctx := context.Background()
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		panic(err)
	}
	defer api.Close()
	eng := store.Docker{APIClient: api}
	image, err := images.Resolve(ctx, eng, images.Catalog{}, "python:3.12-slim")
	if err != nil {
		panic(err)
	}
	contents, err := eng.Contents(ctx, image.ID)
	fmt.Println(contents.System, len(contents.Packages), err)
}
