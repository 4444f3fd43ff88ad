package collect_test

import (
	"context"
	"fmt"
	"os"

	"github.com/evalbox/evalbox/sandbox/collect"
)

func ExampleOutputs() {
	dir, err := os.MkdirTemp("", "final")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	root, err := os.OpenRoot(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer root.Close()
	fmt.Println(root.WriteFile("scores.csv", []byte("1\n"), 0o600), root.Symlink("/etc/passwd", "link"))

	outputs, skipped, err := collect.Outputs(context.Background(), root,
		collect.Limits{Files: 1000, Depth: 20, FileBytes: 1 << 20, TotalBytes: 1 << 20}, nil)
	for _, o := range outputs {
		fmt.Println(o.Path, o.SizeBytes, o.SHA256[:8])
	}
	for _, s := range skipped {
		fmt.Println(s.Path, s.Kind, s.Reason)
	}
	fmt.Println(err)
	// Output:
	// <nil> <nil>
	// scores.csv 2 4355a46b
	// link symlink not a regular file
	// <nil>
}

func ExampleEncodePath() {
	fmt.Println(collect.EncodePath("a\nb"))
	// Output: a\nb YQpi
}
