package spec

import (
	"maps"
	"slices"
	"strings"
)

// MergeEnv merges environments into sorted NAME=value pairs; later ones win.
func MergeEnv(envs ...[]string) []string {
	merged := map[string]string{}
	for _, env := range envs {
		for _, pair := range env {
			name, _, _ := strings.Cut(pair, "=")
			merged[name] = pair
		}
	}
	return slices.Sorted(maps.Values(merged))
}
