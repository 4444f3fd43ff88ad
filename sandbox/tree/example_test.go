package tree_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/collect"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// A directory is copied, a program changes the copy, and the changes are listed.
func Example() {
	fmt.Println(changes(context.Background()))
	// Output: created new.txt, deleted old.txt <nil>
}

func changes(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "tree")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	source, working := filepath.Join(dir, "source"), filepath.Join(dir, "copy")
	if err := os.MkdirAll(source, 0o700); err != nil {
		return "", err
	}
	if err := os.Mkdir(working, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(source, "old.txt"), []byte("old"), 0o600); err != nil {
		return "", err
	}
	from, err := os.OpenRoot(source)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.OpenRoot(working)
	if err != nil {
		return "", err
	}
	defer to.Close()
	limits := tree.Limits{Entries: 1000, Depth: 20, Bytes: 1 << 20}
	base, _, err := tree.Copy(ctx, from, tree.NewDirSink(to, -1, -1), tree.Options{Limits: limits})
	if err != nil {
		return "", err
	}

	if err := to.Rename("old.txt", "new.txt"); err != nil {
		return "", err
	}

	now, err := tree.List(ctx, to, base, collect.Limits{Files: 1000, Depth: 20, FileBytes: 1 << 20, TotalBytes: 1 << 20})
	if err != nil {
		return "", err
	}
	c := tree.Compare(base, now, 1000)
	return fmt.Sprintf("created %s, deleted %s", c.Created[0].Path, c.Deleted[0].Path), nil
}
