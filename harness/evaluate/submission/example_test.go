package submission_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/harness/evaluate/submission"
)

func ExampleInfo() {
	dir, err := os.MkdirTemp("", "work-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	final := filepath.Join(dir, "final")
	if err := os.Mkdir(final, 0o755); err != nil {
		fmt.Println(err)
		return
	}
	if err := os.WriteFile(filepath.Join(final, submission.DefaultName), []byte("id,label\n1,a\n2,b\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	file, err := submission.Info(dir, submission.DefaultName)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(file.Exists, *file.RowCount, file.SizeBytes)
	// Output: true 2 17
}
