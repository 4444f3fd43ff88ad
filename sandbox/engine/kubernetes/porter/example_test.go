package porter_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/engine/kubernetes/porter"
)

// Files become an archive in one pod, and files again in another place.
func ExamplePack() {
	dir, err := os.MkdirTemp("", "porter-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	volume, copied := filepath.Join(dir, "volume"), filepath.Join(dir, "copied")
	if err := os.MkdirAll(filepath.Join(volume, "run", "final"), 0o700); err != nil {
		panic(err)
	}
	if err := os.Mkdir(copied, 0o700); err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(volume, "run", "final", "scores.csv"), []byte("0.93\n"), 0o600); err != nil {
		panic(err)
	}
	var archive bytes.Buffer
	if err := porter.Pack(volume, "run/final", &archive); err != nil {
		panic(err)
	}
	if err := porter.Unpack(copied, &archive); err != nil {
		panic(err)
	}
	scores, err := os.ReadFile(filepath.Join(copied, "final", "scores.csv"))
	fmt.Print(string(scores))
	fmt.Println(err)
	// Output:
	// 0.93
	// <nil>
}
