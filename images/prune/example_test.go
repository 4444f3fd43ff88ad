package prune_test

import (
	"context"
	"fmt"
	"time"

	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/prune"
)

// Show which images would be removed to keep at most 20 GiB.
func ExampleImages() {
	l, err := lock.Read("images.lock")
	if err != nil {
		panic(err)
	}
	usage, err := images.DefaultUsageDir()
	if err != nil {
		panic(err)
	}
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		panic(err)
	}
	defer api.Close()
	report, err := prune.Images(context.Background(), api, []lock.Lock{l}, prune.Options{
		KeepBytes: 20 << 30, UnusedFor: 24 * time.Hour, DryRun: true, UsageDir: usage, Now: time.Now(),
	})
	for _, image := range report.Removed {
		fmt.Println(image.ID, image.Tags, image.LastUse)
	}
	fmt.Println(report.RemovedBytes, err)
}
