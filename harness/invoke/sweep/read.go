package sweep

import (
	"fmt"
	"io"
	"os"

	"github.com/evalbox/evalbox/internal/fsx"
)

// readIn reads a regular file of at most limit bytes below root.
func readIn(root *os.Root, name string, limit int64) ([]byte, error) {
	file, _, err := fsx.OpenIn(root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return text, err
}
