package enginetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// soon waits until is returns true, at most a minute.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 20*time.Millisecond, what)
}

// testRemoval checks that a removal can be repeated, works in any state and by name or ID, and
// ends a running program.
func testRemoval(t *testing.T, s *suite) {
	e := s.connect(t)
	require.NoError(t, e.Remove(t.Context(), "evalbox-t"+randomID()), "an unknown container")
	for name, remove := range map[string]func(c engine.Container, meta engine.Meta) error{
		"itself":  func(c engine.Container, _ engine.Meta) error { return c.Remove(t.Context()) },
		"by name": func(_ engine.Container, meta engine.Meta) error { return e.Remove(t.Context(), meta.Name) },
		"by ID":   func(c engine.Container, _ engine.Meta) error { return e.Remove(t.Context(), c.Ref().ID) },
	} {
		for _, state := range []string{"waiting", "running", "ended"} {
			meta := s.meta(t)
			c := s.must(t, e, s.class(), meta)
			switch state {
			case "running":
				s.begin(t, c, "ignores")
			case "ended":
				do(t, c, s.job(t, "nothing"), nil)
			}
			for range 2 {
				require.NoError(t, remove(c, meta), "%s, %s", name, state)
			}
			if name == "itself" { // the removal is certain, but may take a moment
				soon(t, "it still exists", func() bool { return len(s.found(t, e, meta.Name)) == 0 })
			}
			require.Empty(t, s.found(t, e, meta.Name), "%s, %s", name, state)
			if state != "running" {
				continue
			}
			end, err := c.Wait(t.Context())
			assert.False(t, end.Reported && !errors.Is(err, engine.ErrNoContainer), "%+v, %v", end, err)
			assert.NotErrorIs(t, err, engine.ErrUnavailable)
			assert.Positive(t, end.Duration, "as long as its controller saw")
		}
	}
}

// testLook checks that a container that waits for its job can be looked at again and again, and that
// nobody takes one that has ended, or that has its job, for a waiting one.
func testLook(t *testing.T, s *suite) {
	e, c := s.prepared(t)
	for range 3 {
		ready, err := c.Look(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.Ready().Build, ready.Build)
		require.Equal(t, c.Ready().Mounts, ready.Mounts)
	}
	require.Zero(t, do(t, c, s.job(t, "nothing"), nil).end.ExitCode)
	_, err := c.Look(t.Context())
	require.Error(t, err, "it has had its job")

	removed := s.must(t, e, s.class(), s.meta(t))
	require.NoError(t, e.Remove(t.Context(), removed.Ref().ID))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = removed.Look(ctx)
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "the end of its streams shows")
}

// testPass checks that another process can take over a container that waits, and that the container
// ends with the last copy of its connection.
func testPass(t *testing.T, s *suite) {
	e := s.connect(t)
	from, ok := e.(engine.Passer)
	if !ok {
		t.Fatal("the engine is not a Passer; say so in Options.Without")
	}
	pass := func() (engine.Passed, *os.File, engine.Meta) {
		meta := s.meta(t)
		passed, connection, err := from.Pass(s.must(t, e, s.class(), meta))
		require.NoError(t, err)
		return passed, connection, meta
	}
	to, ok := s.connect(t).(engine.Passer)
	require.True(t, ok)
	passed, connection, _ := pass()
	c, err := to.Receive(t.Context(), s.class(), passed, connection)
	require.NoError(t, err)
	require.Equal(t, passed.ID, c.Ref().ID)
	got := do(t, c, s.job(t, "prints"), nil)
	require.True(t, got.end.Reported && got.end.Complete, "%+v", got.end)
	require.True(t, strings.HasSuffix(got.stdout, "19\nend\n"), got.stdout)
	require.NoError(t, c.Remove(t.Context()))

	_, connection, meta := pass()
	require.NoError(t, connection.Close())
	soon(t, "it waits for a job that nobody can send", func() bool {
		found := s.found(t, e, meta.Name)
		return len(found) == 0 || found[0].Ended
	})

	passed, connection, _ = pass()
	require.NoError(t, e.Remove(t.Context(), passed.ID))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = to.Receive(ctx, s.class(), passed, connection)
	require.Error(t, err, "it was removed")
	require.NoError(t, ctx.Err(), "the end of its streams shows")
}

// testWarm checks that a command that ran before the job leaves nothing of itself but its files in
// memory: no process, no output, and no processor time of the job. One that fails does no harm.
func testWarm(t *testing.T, s *suite) {
	e := s.connect(t)
	for name, warm := range map[string][]string{
		"runs":         {"python3", "-c", "print('warm'); import time; [time.thread_time() for _ in iter(lambda: time.thread_time() < 0.3, False)]"},
		"fails":        {"python3", "-c", "raise SystemExit(3)"},
		"is not there": {"no-such-command"},
	} {
		meta := s.meta(t)
		meta.Warm = warm
		c := s.must(t, e, s.class(), meta)
		_, err := c.Look(t.Context())
		require.NoError(t, err, name)
		got := do(t, c, s.job(t, "nothing"), nil)
		require.Zero(t, got.end.ExitCode, name)
		require.Empty(t, got.stdout, name)
		require.Empty(t, got.stderr, name)
		require.Empty(t, got.end.NotPreloaded, name)
		if !s.Scripted {
			require.Less(t, got.end.Usage.CPU, 300*time.Millisecond, name)
		}
	}
}

func testSample(t *testing.T, s *suite) {
	e, c := s.prepared(t)
	s.begin(t, c, "spins")
	var first, second engine.Usage
	soon(t, "no sample", func() bool {
		var ok bool
		first, ok = c.Sample(t.Context())
		return ok && first.CPU > 0 && first.PeakMemory >= 16*mib
	})
	soon(t, "no time was used", func() bool {
		var ok bool
		second, ok = c.Sample(t.Context())
		return ok && (s.Scripted || second.CPU > first.CPU)
	})
	require.GreaterOrEqual(t, second.PeakMemory, first.PeakMemory)
	require.NotEmpty(t, second.Source)
	require.Positive(t, second.Memory)
	require.LessOrEqual(t, second.Memory, second.PeakMemory)
	require.GreaterOrEqual(t, second.Processes, int64(2), "init and the program")
	require.NoError(t, c.Signal(t.Context(), engine.Stop))
	end := wait(t, c)
	require.GreaterOrEqual(t, end.Usage.CPU, second.CPU)
	require.GreaterOrEqual(t, end.Usage.PeakMemory, second.PeakMemory)
	require.NoError(t, e.Remove(t.Context(), c.Ref().ID))
	_, ok := c.Sample(t.Context())
	require.False(t, ok, "a removed container has no samples")
}

// testDisconnect checks that Disconnect ends a blocked Wait, and that the container can still be
// signaled, awaited and removed.
func testDisconnect(t *testing.T, s *suite) {
	_, c := s.prepared(t)
	s.begin(t, c, "ignores")
	err := interrupted(t, c, func() {
		c.Disconnect()
		c.Disconnect()
	})
	require.ErrorIs(t, err, engine.ErrUnavailable, "it has not ended")
	require.NoError(t, c.Signal(t.Context(), engine.Kill))
	end := wait(t, c)
	require.True(t, end.Interrupted, "%+v", end)
	if end.Reported {
		require.Equal(t, 9, end.Signal)
		require.Equal(t, engine.BySignal, end.Cause)
	}
	require.NoError(t, c.Remove(t.Context()))
}

// testWaiting checks that a context ends only the call, not the container.
func testWaiting(t *testing.T, s *suite) {
	_, c := s.prepared(t)
	var stdout recorder
	require.NoError(t, c.Start(t.Context(), s.job(t, "prints"), engine.Streams{Stdout: &stdout}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Wait(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var wg sync.WaitGroup
	ends := make([]engine.End, 3)
	for i := range ends {
		wg.Go(func() { ends[i], _ = c.Wait(t.Context()) })
	}
	wg.Wait()
	require.True(t, ends[0].Reported && ends[0].Complete)
	require.Equal(t, ends[0], ends[1])
	require.Equal(t, ends[0], ends[2])
	require.True(t, strings.HasSuffix(stdout.String(), "19\nend\n"))
}

// testSignals signals containers that wait for a job or have ended, and aborts one that runs.
func testSignals(t *testing.T, s *suite) {
	e := s.connect(t)
	for _, how := range []engine.Signal{engine.Stop, engine.Kill, engine.Abort} {
		meta := s.meta(t)
		c := s.must(t, e, s.class(), meta)
		require.NoError(t, c.Signal(t.Context(), how))
		soon(t, "it still waits", func() bool { found := s.found(t, e, meta.Name); return len(found) == 1 && found[0].Ended })
		require.Error(t, c.Start(t.Context(), s.job(t, "nothing"), engine.Streams{}))
	}
	c := s.must(t, e, s.class(), s.meta(t))
	do(t, c, s.job(t, "nothing"), nil)
	for _, how := range []engine.Signal{engine.Stop, engine.Kill, engine.Abort} {
		require.NoError(t, c.Signal(t.Context(), how))
	}
	require.NoError(t, c.Remove(t.Context()))
	require.NoError(t, c.Signal(t.Context(), engine.Kill))

	c = s.must(t, e, s.class(), s.meta(t))
	s.begin(t, c, "ignores")
	require.NoError(t, c.Signal(t.Context(), engine.Abort))
	unreported(t, wait(t, c), false)
}

// brokenWriter fails after the given number of bytes.
type brokenWriter struct{ left int }

func (w *brokenWriter) Write(text []byte) (int, error) {
	if w.left -= len(text); w.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(text), nil
}

// testWriters checks that a writer that fails, or is nil, does not affect the job.
func testWriters(t *testing.T, s *suite) {
	_, c := s.prepared(t)
	stdout := &brokenWriter{left: 3}
	require.NoError(t, c.Start(t.Context(), s.job(t, "prints"), engine.Streams{Stdout: stdout}))
	end := wait(t, c)
	require.True(t, end.Reported && end.Complete)
	require.Zero(t, end.ExitCode)
}

// testStuckStdin checks that the end of a job does not wait for a blocked stdin.
func testStuckStdin(t *testing.T, s *suite) {
	_, c := s.prepared(t)
	never, feed := io.Pipe()
	defer func() { require.NoError(t, feed.Close()) }()
	job := s.job(t, "nothing")
	job.Stdin = true
	got := do(t, c, job, never)
	require.True(t, got.end.Reported && got.end.Complete)
	atOnce(t, got)
}

// testUnaskedStdin checks that stdin is not read if the job does not ask for it.
func testUnaskedStdin(t *testing.T, s *suite) {
	untouched := readerFunc(func([]byte) (int, error) {
		t.Error("stdin was read")
		return 0, io.EOF
	})
	got := do(t, s.must(t, s.connect(t), s.class(), s.meta(t)), s.job(t, "nothing"), untouched)
	require.True(t, got.end.Reported)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// testRelease checks that a released container ends, and continues to exist.
func testRelease(t *testing.T, s *suite) {
	e := s.connect(t)
	meta := s.meta(t)
	c := s.must(t, e, s.class(), meta)
	do(t, c, s.job(t, "nothing"), nil)
	c.Release()
	soon(t, "it still runs", func() bool {
		found := s.found(t, e, meta.Name)
		return len(found) == 1 && found[0].Ended && !found[0].Running
	})
}

// testOpen opens containers through another engine value.
func testOpen(t *testing.T, s *suite) {
	e, other := s.connect(t), s.connect(t)
	_, err := other.Open(t.Context(), engine.Ref{ID: strings.Repeat("0f", 32), Nonce: strings.Repeat("00", 32)}, engine.Streams{})
	require.ErrorIs(t, err, engine.ErrNoContainer)

	c := s.must(t, e, s.class(), s.meta(t))
	require.Len(t, c.Ref().Nonce, 64, "it can be written down before the start")
	before := c.Ref()
	var first, running, ended recorder
	require.NoError(t, c.Start(t.Context(), s.job(t, "prints"), engine.Streams{Stdout: &first}))
	require.Equal(t, before, c.Ref())
	opened, err := other.Open(t.Context(), c.Ref(), engine.Streams{Stdout: &running})
	require.NoError(t, err)
	require.Equal(t, c.Ref(), opened.Ref())
	end := wait(t, c)
	c.Release()
	again := wait(t, opened)
	require.True(t, end.Complete && again.Reported && again.Complete, "%+v\n%+v", end, again)
	require.Equal(t, end.ExitCode, again.ExitCode)
	require.Equal(t, first.String(), running.String())

	opened, err = other.Open(t.Context(), c.Ref(), engine.Streams{Stdout: &ended})
	require.NoError(t, err)
	again = wait(t, opened)
	require.True(t, again.Reported && again.Complete, "%+v", again)
	require.Equal(t, end.Duration, again.Duration)
	require.Equal(t, first.String(), ended.String())
	require.NoError(t, other.Remove(t.Context(), c.Ref().ID))
	require.NoError(t, opened.Remove(t.Context()))
	require.NoError(t, c.Remove(t.Context()))
	_, err = other.Open(t.Context(), c.Ref(), engine.Streams{})
	require.ErrorIs(t, err, engine.ErrNoContainer)
}

// testList checks that a listed container can be recognized.
func testList(t *testing.T, s *suite) {
	e := s.connect(t)
	meta := s.meta(t)
	began := time.Now()
	c := s.must(t, e, s.class(), meta)
	soon(t, "it is listed as running, of which a node reports late", func() bool {
		found := s.found(t, e, meta.Name)
		return len(found) == 1 && found[0].Running
	})
	found := s.found(t, e, meta.Name)
	require.Len(t, found, 1)
	require.False(t, found[0].Ended)
	require.Equal(t, c.Ref().ID, found[0].ID)
	require.Subset(t, found[0].Labels, meta.Labels)
	require.WithinDuration(t, began, found[0].CreatedAt, time.Minute)
	do(t, c, s.job(t, "nothing"), nil)
}

// testForeign checks that a signal from another client of the engine is reported as foreign.
func testForeign(t *testing.T, s *suite) {
	e, other := s.connect(t), s.connect(t)
	c := s.must(t, e, s.class(), s.meta(t))
	s.begin(t, c, "ignores")
	opened, err := other.Open(t.Context(), c.Ref(), engine.Streams{})
	require.NoError(t, err)
	require.NoError(t, opened.Signal(t.Context(), engine.Kill))
	foreign := func(c engine.Container) bool {
		end := wait(t, c)
		require.Equal(t, 9, end.Signal, "%+v", end)
		require.Equal(t, engine.BySignal, end.Cause)
		return len(end.Foreign) > 0 || end.ForeignErr != nil
	}
	require.True(t, foreign(c))
	c.Release()
	require.False(t, foreign(opened), "its own signal")
}

// testRelay connects to a proxy: a port in the container leads to a socket of the host.
func testRelay(t *testing.T, s *suite) {
	e := s.connect(t)
	dir := openDir(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, spec.EgressSocket))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	require.NoError(t, os.Chmod(filepath.Join(dir, spec.EgressSocket), 0o777))
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			go func() {
				text, _ := io.ReadAll(conn)
				_, _ = conn.Write(bytes.ToUpper(text))
				_ = conn.Close()
			}()
		}
	}()
	class, meta := s.class(), s.meta(t)
	class.Binds = []spec.Bind{{Role: spec.RoleEgress, Target: spec.EgressDir, ReadOnly: true}}
	meta.Sources = engine.Sources{spec.RoleEgress: dir}
	job := s.job(t, "relayed")
	job.Egress = &spec.Egress{Connections: 1}
	got := do(t, s.must(t, e, class, meta), job, nil)
	require.Equal(t, strings.Repeat("HELLO\n", 3), got.stdout, "%+v %s", got.end, got.stderr)
}

// testClose checks that the jobs of a closed engine continue to run.
func testClose(t *testing.T, s *suite) {
	e, closed := s.connect(t), s.New(t)
	c, err := closed.Prepare(t.Context(), s.class(), s.meta(t))
	require.NoError(t, err)
	s.begin(t, c, "sleeps")
	err = interrupted(t, c, func() { require.NoError(t, closed.Close()) })
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "Wait does not return after Close")
	opened, err := e.Open(t.Context(), c.Ref(), engine.Streams{})
	require.NoError(t, err)
	require.NoError(t, opened.Signal(t.Context(), engine.Stop))
	end := wait(t, opened)
	require.Equal(t, 15, end.Signal, "%+v", end)
	require.NoError(t, opened.Remove(t.Context()))
}
