package archive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/collect"
)

// An archive that an engine made of ./final is unpacked. Its link is left out.
func ExampleUnpacker() {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, h := range []tar.Header{
		{Name: "final/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "final/scores.csv", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "final/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			fmt.Println(err)
			return
		}
	}
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

	u := archive.NewUnpacker(root, "final", collect.Limits{Files: 100, Depth: 10, FileBytes: 1 << 20, TotalBytes: 1 << 20}, nil)
	fmt.Println(w.Close(), u.Unpack(context.Background(), &packed, "."))
	_, err = root.Lstat("scores.csv")
	fmt.Println(err)
	for _, s := range u.Skipped.Sorted() {
		fmt.Println(s.Path, s.Reason)
	}
	// Output:
	// <nil> <nil>
	// <nil>
	// link not a regular file
}

func ExampleReadSpace() {
	lines := strings.Split("free /dev/sda1 1000 400 600 40% /evalbox\nentries 3\nused 12 .", "\n")
	space, err := archive.ReadSpace(func() (string, error) {
		line := lines[0]
		lines = lines[1:]
		return line, nil
	})
	fmt.Println(space.Free, space.Entries, space.Used, err)
	// Output: 614400 3 12288 <nil>
}
