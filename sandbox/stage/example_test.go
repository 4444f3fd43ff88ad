package stage_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// The files of a run from the record to the list of its outputs, with a program that is one
// call of WriteFile.
func Example() {
	dir, err := os.MkdirTemp("", "state-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := record.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	s, err := stage.Open(stage.Options{
		Store: store,
		Plan: spec.Spec{
			Class: spec.Class{User: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())},
			Job: spec.Job{RunID: "r1", DiskBytes: 1 << 20,
				OutputFiles: 10, OutputDepth: 10, OutputFileBytes: 1 << 20, OutputTotalBytes: 1 << 20},
		},
		Warn: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
		Stop: func(outcome.StopReason) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	sources, err := s.Send(ctx, nil)
	if err == nil {
		err = s.Grant(ctx)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(sources[spec.RoleFinal], "score"), []byte("0.75"), 0o600)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	left := s.Collect(ctx, true, true, false)
	s.Restore(ctx, false)
	for _, output := range left.Outputs {
		fmt.Println(output.Path, output.SizeBytes)
	}
	// Output: score 4
}
