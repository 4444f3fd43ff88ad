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

// SortedEnv renders an environment as sorted NAME=value pairs.
func SortedEnv(env map[string]string) []string {
	pairs := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, name+"="+env[name])
	}
	return pairs
}
