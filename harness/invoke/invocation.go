package invoke

import (
	"fmt"
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
