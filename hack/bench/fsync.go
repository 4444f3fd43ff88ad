//go:build linux

package main

import (
	"bytes"
	"context"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
)

// The files of a run that are on the disk before the run continues. A file written without fsync can be
// found out again after a power cut, or belongs to a container that the power cut ended as well.
var synced = map[string]int{sideSyncResult: 6 << 10, sideSyncNote: 2 << 10}

// fsync measures what each fsync of a run costs, beside the same write without it.
func (b *bench) fsync(ctx context.Context, c *oneCase, rounds int) error {
	write := func(name string, size int, durable bool) (float64, error) {
		began := time.Now()
		err := fsx.WriteFile(filepath.Join(b.dir, name), bytes.Repeat([]byte("x"), size), 0o600, durable)
		return float64(time.Since(began)) / float64(time.Millisecond), err
	}
	for round := range rounds + 1 {
		took := map[string]float64{}
		for name, size := range synced {
			var err error
			if took[name], err = write("synced", size, true); err != nil {
				return err
			}
		}
		var err error
		if took[sideUnsynced], err = write("unsynced", synced[sideSyncResult], false); err != nil {
			return err
		}
		for _, name := range []string{sideSyncResult, sideSyncNote, sideUnsynced} {
			if round > 0 {
				c.add(name, took[name])
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
