package archive_test

import (
	"context"
	"os"

	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/archive"
	"github.com/evalbox/evalbox/images/lock"
)

// Write a locked image to a file, for a machine without a registry.
func ExampleExport() {
	l, err := lock.Read("images.lock")
	if err != nil {
		panic(err)
	}
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		panic(err)
	}
	defer api.Close()
	file, err := os.Create("python.tar")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if err := archive.Export(context.Background(), api, images.Catalog{}, l, "python:3.12-slim", file); err != nil {
		panic(err)
	}
}
