//go:build linux

package owner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOwnerIsReadAsItIsWritten(t *testing.T) {
	for _, o := range []Owner{
		This(),
		{Boot: "b", Namespace: "4026531836", PID: 1, Start: "0"},
		{Boot: "", Namespace: "", PID: 4194304, Start: ""},
	} {
		back, err := Parse(o.String())
		require.NoError(t, err)
		require.Equal(t, o, back)
	}
}

func TestParseOwnerRefuses(t *testing.T) {
	for _, text := range []string{"", "/", "a/b/1", "a/b/1/2/3", "a/b/x/1", "a/b//1", "a/b/0/1", "a/b/-1/1", "a/b/99999999999999999999/1", "a/b/1.5/1"} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

func FuzzParseOwner(f *testing.F) {
	f.Add("a/b/1/2")
	f.Add("///")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := Parse(text)
		if err != nil {
			return
		}
		require.Positive(t, o.PID)
		again, err := Parse(o.String())
		require.NoError(t, err)
		require.Equal(t, o, again)
		o.Fate() // must not fail, whatever a stranger's label says
	})
}

func TestThisProcessLives(t *testing.T) {
	self := This()
	require.Equal(t, os.Getpid(), self.PID)
	require.NotEmpty(t, self.Start)
	require.NotContains(t, []string{"", "unknown"}, self.Boot)
	require.NotContains(t, []string{"", "unknown"}, self.Namespace)
	require.Equal(t, Alive, self.Fate())
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

	other := This()
	other.PID = cmd.Process.Pid
	start, alive := ProcessStart(other.PID)
	require.True(t, alive)
	other.Start = start
	require.Equal(t, Alive, other.Fate())

	later := other
	later.Start += "0"
	require.Equal(t, Dead, later.Fate(), "the number was given to a newer process")

	end()
	require.Equal(t, Dead, other.Fate(), "a zombie will finish nothing")
	require.NoError(t, cmd.Wait())
	require.Equal(t, Dead, other.Fate())
}

func TestOwnersThatCannotBeSeen(t *testing.T) {
	for name, change := range map[string]func(*Owner){
		"another machine or boot":  func(o *Owner) { o.Boot = "another" },
		"another PID namespace":    func(o *Owner) { o.Namespace = "1" },
		"neither, and no such pid": func(o *Owner) { o.Boot, o.Namespace, o.PID = "x", "y", 4194304 },
	} {
		o := This()
		change(&o)
		require.Equal(t, Unknown, o.Fate(), name)
	}
	dead := This()
	dead.PID = 1 << 30 // above any kernel's maximum
	require.Equal(t, Dead, dead.Fate())
}

func TestGone(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	dead, unseen := This(), This()
	dead.Start = "1"
	unseen.Namespace = "another"
	for name, c := range map[string]struct {
		text     string
		deadline time.Time
		gone     bool
		why      string
	}{
		"lives":                             {This().String(), now.Add(-time.Hour), false, fmt.Sprintf("its owner, process %d, lives", os.Getpid())},
		"is dead":                           {dead.String(), now.Add(time.Hour), true, fmt.Sprintf("its owner, process %d, is gone", os.Getpid())},
		"is not seen":                       {unseen.String(), now.Add(time.Hour), false, "its owner cannot be seen from here, and its deadline is 2026-01-02T04:04:05Z"},
		"is not seen, behind its deadline":  {unseen.String(), now.Add(-time.Second), true, "its owner cannot be seen from here, and its deadline is over"},
		"is not seen, and has no deadline":  {unseen.String(), time.Time{}, false, "its owner cannot be seen from here, and it has no deadline"},
		"is not named":                      {"", now.Add(time.Hour), false, `owner "" is not of the form boot/namespace/pid/start, and its deadline is 2026-01-02T04:04:05Z`},
		"is not named, behind its deadline": {"torn", now.Add(-time.Hour), true, `owner "torn" is not of the form boot/namespace/pid/start, and its deadline is over`},
	} {
		gone, why := Gone(c.text, c.deadline, now)
		require.Equal(t, c.gone, gone, name)
		require.Equal(t, c.why, why, name)
	}
}
