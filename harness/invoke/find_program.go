package invoke

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
)

// findProgram looks a program up as a shell does, but in the PATH that the tool gets
// and from the folder that it starts in. One that is there and may not be executed is an
// [ErrNotExecutable].
func findProgram(word, dir string, env []string) (string, error) {
	if word == "" {
		return "", errors.New("the name of the program is empty")
	}
	if strings.ContainsRune(word, filepath.Separator) {
		if !filepath.IsAbs(word) {
			word = filepath.Join(dir, word)
		}
		return word, executable(word)
	}
	for _, pair := range env {
		list, isPath := strings.CutPrefix(pair, "PATH=")
		if !isPath {
			continue
		}
		for _, folder := range filepath.SplitList(list) {
			if !filepath.IsAbs(folder) {
				continue // what that means depends on the folder that one is in
			}
			if file := filepath.Join(folder, word); executable(file) == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%q: no such program", word)
}

// executable says why a file cannot be a program.
func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%q: %w", file, fsx.Cause(err))
	case err != nil:
		return fmt.Errorf("%q: %w: %w", file, ErrNotExecutable, fsx.Cause(err))
	case !info.Mode().IsRegular():
		return fmt.Errorf("%q: %w: is %s", file, ErrNotExecutable, fsx.Kind(info.Mode()))
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%q: %w: permission denied", file, ErrNotExecutable)
	}
	return nil
}
