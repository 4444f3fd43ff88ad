//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProcessesNaming: what is ended by its command line is never somebody else's.
func TestProcessesNaming(t *testing.T) {
	for _, text := range []string{"", "/", "sleep", filepath.Join("/tmp", "evalbox-faults-")} {
		require.Empty(t, processesNaming(text), text)
		require.Empty(t, processesOn(text), text)
	}
	name := "evalbox-faults-test-of-a-unique-text"
	cmd := exec.Command("sleep", "60")
	cmd.Args[0] = name
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	})
	require.Equal(t, []int{cmd.Process.Pid}, processesNaming(name))
	require.NotContains(t, processesNaming(name), os.Getpid())
}
