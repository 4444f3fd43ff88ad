package stream_test

import (
	"fmt"
	"io"
	"os"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/stream"
)

// The file keeps the first 8 bytes. The score is found nevertheless.
func ExampleOpenOutput() {
	dir, err := os.MkdirTemp("", "record-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	var score result.ScoreScanner
	out, err := stream.OpenOutput(dir, stream.Options{FileBytes: 8, CaptureStdout: 100, CaptureStderr: 100,
		WatchStdout: []io.Writer{&score}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(out.Stdout, "Final Validation Performance: 0.75")
	fmt.Println(out.Close(), out.Stdout.Name, out.Stdout.Kept(), out.Stdout.Total(), *score.Finite())
	// Output: [] stdout.log 8 35 0.75
}
