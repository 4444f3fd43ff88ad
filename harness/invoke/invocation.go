package invoke

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/policy"
)

// Invocation is one call of a tool (M3-02).
type Invocation struct {
	// Config is the tool's configuration file. Whether it exists is for the tool to
	// find out (MI-02).
	Config string
	// OutputDir is where the tool leaves its artifacts. It must exist, be a directory,
	// and hold none of the artifacts yet.
	OutputDir string
	// Adapter and Seed are passed on if they are not nil; an empty adapter is one.
	Adapter *string
	Seed    *int64
}

// arguments are what follows the words of the executable (M3-05).
func (inv Invocation) arguments(config, output string) []string {
	args := []string{"--config", config, "--output", output}
	if inv.Adapter != nil {
		args = append(args, "--adapter", *inv.Adapter)
	}
	if inv.Seed != nil {
		args = append(args, "--seed", strconv.FormatInt(*inv.Seed, 10))
	}
	return args
}

// absolute is the invocation with absolute paths (M3-10).
func (inv Invocation) absolute() (Invocation, error) {
	for _, path := range []struct {
		field string
		value *string
	}{{"config", &inv.Config}, {"output", &inv.OutputDir}} {
		refuse := func(rule string) error {
			return &policy.FieldError{Field: path.field, Value: fmt.Sprintf("%.200q", *path.value), Rule: rule}
		}
		switch {
		case *path.value == "":
			return inv, refuse("must not be empty")
		case strings.ContainsRune(*path.value, 0):
			return inv, refuse("holds a NUL byte")
		}
		abs, err := filepath.Abs(*path.value)
		if err != nil {
			return inv, refuse(err.Error())
		}
		*path.value = abs
	}
	if inv.Adapter != nil && strings.ContainsRune(*inv.Adapter, 0) {
		return inv, &policy.FieldError{Field: "adapter", Value: fmt.Sprintf("%.200q", *inv.Adapter), Rule: "holds a NUL byte"}
	}
	return inv, nil
}

// checkOutput looks at the output directory before the tool is started (MI-02). An
// artifact that is there already could not be told from one that the tool writes, and
// so is refused.
func checkOutput(dir string, artifacts []string) error {
	refuse := func(rule string) error {
		return &policy.FieldError{Field: "output", Value: fmt.Sprintf("%.200q", dir), Rule: rule}
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("does not exist: make the directory first")
	case err != nil:
		return refuse("cannot be used: " + cause(err))
	case !info.IsDir():
		return refuse("is not a directory")
	}
	for _, name := range artifacts {
		_, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name)))
		switch {
		case err == nil:
			return refuse("holds " + name + " from before: give a directory without it, or remove it")
		case !errors.Is(err, fs.ErrNotExist) && !isNotDir(err):
			return refuse(name + " cannot be looked at: " + cause(err))
		}
	}
	return nil
}

// cause is the reason of a file error without its path, which is named already.
func cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
