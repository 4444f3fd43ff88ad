package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStartIsLight: every command pays for what packages do before main. Tables that only some
// commands need, such as regular expressions, are made when they are needed (sync.OnceValue).
func TestStartIsLight(t *testing.T) {
	const maxAllocations = 256
	program, err := exec.LookPath("sandbox") // see TestMain
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "--help")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	require.NoError(t, cmd.Run(), trace.String())
	lines := regexp.MustCompile(`(?m)^init (github\.com/evalbox/\S+) .* (\d+) allocs$`).FindAllStringSubmatch(trace.String(), -1)
	require.Greater(t, len(lines), 20, trace.String())
	for _, line := range lines {
		allocations, err := strconv.Atoi(line[2])
		require.NoError(t, err)
		require.LessOrEqual(t, allocations, maxAllocations, "package %s", line[1])
	}
}
