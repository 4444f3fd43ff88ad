//go:build linux

package sandbox

import (
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/result"
)

// heldContainer is a container of the fake engine that does what an engine, the launcher
// and a program do with the files that are mounted.
type heldContainer struct {
	hold, shadow, keys string
}

func (e *fakeEngine) held() heldContainer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return heldContainer{hold: e.mounts[RoleHold], shadow: e.mounts[watchRole(0)], keys: e.mounts[watchRole(1)]}
}

// open opens and reads a file of the container.
func (h heldContainer) open(path string) {
	file, err := os.Open(path)
	if err == nil {
		_, err = io.ReadAll(file)
	}
	if err != nil {
		panic(err)
	}
	_ = file.Close() // only read
}

// launch is the launcher: it says whether the program may start.
func (h heldContainer) launch() bool {
	h.open(filepath.Join(h.hold, launchFile))
	return h.word()
}

// word reads the word as the launcher does; false if there is none to come.
func (h heldContainer) word() bool {
	path := filepath.Join(h.hold, goFile)
	both, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false // the run is over
	}
	reader, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	_ = both.Close()
	word := make([]byte, len(goWord))
	_, err = io.ReadFull(reader, word)
	_ = reader.Close()
	return err == nil && string(word) == goWord
}

func observeRunner(t *testing.T, engine *fakeEngine) *Runner {
	t.Helper()
	r, err := New(WithEngine(engine), WithStateDir(filepath.Join(t.TempDir(), "state")))
	require.NoError(t, err)
	return r
}

func TestObserveFilesOfARun(t *testing.T) {
	var engine *fakeEngine
	engine = newFakeEngine(func(*fakeContainer) int {
		h := engine.held()
		h.open(h.shadow) // the engine, to mount it
		if !h.launch() {
			return 125
		}
		h.open(filepath.Join(h.hold, launchFile)) // the program may
		h.open(filepath.Join(h.keys, "id_rsa"))
		if entries, err := os.ReadDir(h.keys); err != nil || len(entries) != 5 {
			return 1
		}
		return 0
	})
	r := observeRunner(t, engine)
	req := command("true")
	started := 0
	req.Started = func() { started++ }
	req.Observe = &Observe{Decoys: []string{"/etc/shadow", "/root/.ssh"}, Required: true}
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Equal(t, &result.Observed{Watched: []string{"/etc/shadow", "/root/.ssh/"}, Opened: []string{"/root/.ssh/", "/root/.ssh/id_rsa"}}, res.Observed)
	require.Equal(t, 1, started)
	require.NoDirExists(t, filepath.Join(r.Store().RecordDir("r1"), holdDir))
	require.NoDirExists(t, filepath.Join(r.Store().RecordDir("r1"), watchDir))
}

// TestObserveIsTruthful: what cannot be observed has a reason, and stops the run if it is
// required, before the program starts.
func TestObserveIsTruthful(t *testing.T) {
	for name, test := range map[string]struct {
		program              func(h heldContainer) int
		change               func(e *fakeEngine)
		networkWhy, watchWhy string
	}{
		"no process": {program: func(h heldContainer) int {
			if !h.launch() {
				return 125
			}
			h.open(h.shadow)
			return 0
		}, networkWhy: "did not tell the container's process"},
		"no answer": {program: func(h heldContainer) int {
			if !h.launch() {
				return 125
			}
			h.open(h.shadow)
			return 0
		}, change: func(e *fakeEngine) { e.inspectErr = ErrEngineUnavailable }, networkWhy: "did not tell the container's process: container engine unavailable"},
		"files that are not ours": {program: func(h heldContainer) int {
			if !h.word() { // by another file
				return 125
			}
			return 0
		}, networkWhy: "was not seen here", watchWhy: "was not seen here"},
	} {
		t.Run(name, func(t *testing.T) {
			let := make(chan bool, 2)
			var engine *fakeEngine
			engine = newFakeEngine(func(*fakeContainer) int {
				code := test.program(engine.held())
				let <- code == 0
				return code
			})
			if test.change != nil {
				test.change(engine)
			}
			r := observeRunner(t, engine)
			r.launchWait = 1 // the launcher was there before, or never comes
			if test.watchWhy == "" {
				r.launchWait = defaultLaunchWait
			}
			req := command("true")
			req.Observe = &Observe{Network: true, Decoys: []string{"/etc/shadow"}}
			res, err := r.Run(t.Context(), req)
			require.NoError(t, err)
			require.True(t, <-let)
			require.Nil(t, res.Observed.NetworkAttempts)
			require.Contains(t, res.Observed.NetworkWhy, test.networkWhy)
			require.Contains(t, res.Observed.WatchWhy, test.watchWhy)
			if test.watchWhy == "" {
				require.Equal(t, []string{"/etc/shadow"}, res.Observed.Opened)
			}

			req.ID, req.Observe.Required = "r2", true
			req.Started = func() { t.Error("the program was let go") }
			res, err = r.Run(t.Context(), req)
			require.ErrorIs(t, err, ErrUnobserved)
			require.ErrorContains(t, err, test.networkWhy)
			require.Nil(t, res)
			require.False(t, <-let, "the program did not start")
			require.NoDirExists(t, r.Store().RecordDir("r2"))
			require.Contains(t, engine.removed, "evalbox-r2")
		})
	}
}

// TestObserveOfARunThatEnds: a container that ends before its program could be let go is
// told as any other that did not start it.
func TestObserveOfARunThatEnds(t *testing.T) {
	engine := newFakeEngine(func(c *fakeContainer) int {
		c.printErr("[FATAL tini (7)] exec /bin/sh failed: No such file or directory\n")
		return 127
	})
	r := observeRunner(t, engine)
	req := command("true")
	req.Observe = &Observe{Network: true, Decoys: []string{"/etc/shadow"}, Required: true}
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, result.StatusStartFailed, res.Status)
	require.Contains(t, res.Explanation, "no /bin/sh")
	require.Equal(t, &result.Observed{NetworkWhy: neverStarted, WatchWhy: neverStarted}, res.Observed)
}

// TestObserveCanceledWhileHeld: whoever gives up while the program is held back ends a run
// that never started.
func TestObserveCanceledWhileHeld(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	let := make(chan bool, 1)
	var engine *fakeEngine
	engine = newFakeEngine(func(*fakeContainer) int {
		h := engine.held()
		cancel()
		let <- h.word()
		return 125
	})
	r := observeRunner(t, engine)
	req := command("true")
	req.Started = func() { t.Error("the program was let go") }
	req.Observe = &Observe{Decoys: []string{"/etc/shadow"}}
	res, err := r.Run(ctx, req)
	require.ErrorIs(t, err, errCanceledBefore)
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, res)
	require.False(t, <-let)
	require.NoDirExists(t, r.Store().RecordDir("r1"))
}

func TestPathWatchTellsOfLostReports(t *testing.T) {
	launcher := filepath.Join(t.TempDir(), "launch")
	require.NoError(t, os.WriteFile(launcher, nil, 0o644))
	w, err := newPathWatch(launcher)
	require.NoError(t, err)
	report := make([]byte, unix.SizeofInotifyEvent)
	binary.NativeEndian.PutUint32(report, ^uint32(0)) // of no watch
	binary.NativeEndian.PutUint32(report[4:], unix.IN_Q_OVERFLOW)
	w.take(slices.Repeat(report, 2))
	_, err = w.stop()
	require.ErrorIs(t, err, errOverflow)
	require.NoError(t, w.close())
	require.Error(t, w.add(launcher, Watch{}), "it is over")
}

func TestPathWatchSeesWhatWasOpenedBefore(t *testing.T) {
	dir := t.TempDir()
	launcher, file := filepath.Join(dir, "launch"), filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(launcher, nil, 0o644))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	w, err := newPathWatch(launcher)
	require.NoError(t, err)
	require.NoError(t, w.add(file, Watch{Target: "/x"}))
	require.Error(t, w.add(filepath.Join(dir, "none"), Watch{Target: "/y"}))
	_, err = os.ReadFile(file)
	require.NoError(t, err)
	opened, err := w.stop()
	require.NoError(t, err)
	require.Equal(t, []string{"/x"}, opened)
	require.Equal(t, []string{"/x"}, w.watched())
	require.NoError(t, w.close())
}

func TestRouteCountersAreOfAContainer(t *testing.T) {
	for pid, want := range map[int]string{
		0:           "did not tell",
		-1:          "did not tell",
		1 << 30:     "cannot be read",
		os.Getpid(): "is not that of the container",
	} {
		c, err := openRouteCounters(pid)
		require.ErrorContains(t, err, want)
		require.Nil(t, c)
	}
}

func TestParseCounters(t *testing.T) {
	for head, parse := range map[string]func(string) (int64, error){
		"Ip: Forwarding OutNoRoutes FragOKs\n":      parseNoRoutes,
		"IpExt: InNoRoutes OutMcastPkts InOctets\n": parseMulticast,
	} {
		row, _, _ := strings.Cut(head, " ")
		for text, want := range map[string]int64{head + row + " 1 7 2\nIcmp: InMsgs\nIcmp: 3\n": 7, "X: 1\n" + head + row + " 1 0 2\n": 0} {
			n, err := parse(text)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		for _, text := range []string{"", head, head + row + " 1\n", head + row + " 1 x 2\n", row + " Forwarding\n" + row + " 1\n"} {
			_, err := parse(text)
			require.Error(t, err, text)
		}
	}
	n, err := parseSNMP6("Ip6InReceives \t9\nIp6OutNoRoutes                  \t5\n")
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	for _, text := range []string{"", "Ip6OutNoRoutes\n", "Ip6OutNoRoutes x\n", "Ip6OutNoRoutesX 1\n"} {
		_, err := parseSNMP6(text)
		require.Error(t, err, text)
	}
}
