//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOwnerIsReadAsItIsWritten(t *testing.T) {
	for _, o := range []owner{
		thisOwner(),
		{boot: "b", namespace: "4026531836", pid: 1, start: "0"},
		{boot: "", namespace: "", pid: 4194304, start: ""},
	} {
		back, err := parseOwner(o.String())
		require.NoError(t, err)
		require.Equal(t, o, back)
	}
}

func TestParseOwnerRefuses(t *testing.T) {
	for _, text := range []string{"", "/", "a/b/1", "a/b/1/2/3", "a/b/x/1", "a/b//1", "a/b/0/1", "a/b/-1/1", "a/b/99999999999999999999/1", "a/b/1.5/1"} {
		_, err := parseOwner(text)
		require.Error(t, err, text)
	}
}

func FuzzParseOwner(f *testing.F) {
	f.Add("a/b/1/2")
	f.Add("///")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parseOwner(text)
		if err != nil {
			return
		}
		require.Positive(t, o.pid)
		again, err := parseOwner(o.String())
		require.NoError(t, err)
		require.Equal(t, o, again)
		o.fate() // must not fail, whatever a stranger's label says
	})
}

func TestThisProcessLives(t *testing.T) {
	self := thisOwner()
	require.Equal(t, os.Getpid(), self.pid)
	require.NotEmpty(t, self.start)
	require.NotContains(t, []string{"", "unknown"}, self.boot)
	require.NotContains(t, []string{"", "unknown"}, self.namespace)
	require.Equal(t, fateAlive, self.fate())
}

// sleeper is a process that lives until its stdin is closed. Its name tries to
// look like the fields behind it.
func sleeper(t *testing.T) (*exec.Cmd, func()) {
	t.Helper()
	cat, err := exec.LookPath("cat")
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "a) Z 1 (b")
	require.NoError(t, os.Symlink(cat, name))
	cmd := exec.Command(name)
	cmd.Args[0] = "cat"
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, func() {
		require.NoError(t, stdin.Close())
		// Waits for the end and leaves the zombie.
		require.NoError(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	}
}

func TestFateOfAnotherProcess(t *testing.T) {
	cmd, end := sleeper(t)
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
	require.NoError(t, err)
	require.Equal(t, "a) Z 1 (b", strings.TrimSpace(string(comm)))

	other := thisOwner()
	other.pid = cmd.Process.Pid
	start, alive := processStart(other.pid)
	require.True(t, alive)
	other.start = start
	require.Equal(t, fateAlive, other.fate())

	later := other
	later.start += "0"
	require.Equal(t, fateDead, later.fate(), "the number was given to a newer process")

	end()
	require.Equal(t, fateDead, other.fate(), "a zombie will finish nothing")
	require.NoError(t, cmd.Wait())
	require.Equal(t, fateDead, other.fate())
}

func TestOwnersThatCannotBeSeen(t *testing.T) {
	for name, change := range map[string]func(*owner){
		"another machine or boot":  func(o *owner) { o.boot = "another" },
		"another PID namespace":    func(o *owner) { o.namespace = "1" },
		"neither, and no such pid": func(o *owner) { o.boot, o.namespace, o.pid = "x", "y", 4194304 },
	} {
		o := thisOwner()
		change(&o)
		require.Equal(t, fateUnknown, o.fate(), name)
	}
	dead := thisOwner()
	dead.pid = 1 << 30 // above any kernel's maximum
	require.Equal(t, fateDead, dead.fate())
}
