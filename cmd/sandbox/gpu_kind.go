package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// gpuKindOf is what a cache has to know of the GPUs that runs get: a result of other
// GPUs is another result. Empty when they get none.
func gpuKindOf(ctx context.Context, runner *sandbox.Runner, gpus string) (string, error) {
	if gpus == "" {
		return "", nil
	}
	report, err := runner.GPUs(ctx)
	if err != nil {
		return "", err
	}
	return gpuKind(report.GPUs, gpus)
}

// gpuKind is the kind of the GPUs of a machine. Which ones a run gets is decided when
// it begins, so all that can be lent must be of one kind.
func gpuKind(listed []gpu.Listed, gpus string) (string, error) {
	var kinds []string
	count := 0
	for _, g := range listed {
		if g.State == gpu.StateQuarantined {
			continue
		}
		count++
		kind := "unknown"
		if g.Name != "" {
			kind = fmt.Sprintf("%s, %d MiB", g.Name, g.TotalBytes>>20)
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	switch {
	case len(kinds) == 1 && kinds[0] != "unknown" && gpus == "all":
		return fmt.Sprintf("%d × %s", count, kinds[0]), nil
	case len(kinds) == 1 && kinds[0] != "unknown":
		return kinds[0], nil
	case len(kinds) > 1:
		return "", &hintedError{fmt.Errorf("--cache with --gpus: the GPUs are of several kinds (%s): a result of one is none of another",
			strings.Join(kinds, "; ")), "leave --cache out"}
	}
	return "", &hintedError{errors.New("--cache with --gpus: of what kind the GPUs are is not known"),
		"leave --cache out, or see which GPUs there are with: sandbox gpus"}
}
