package enginetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// soon waits until is returns true, at most a minute.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 20*time.Millisecond, what)
}

// testNames checks that only one container can have a name, and that a failed attempt to reuse
// the name does not affect it.
func testNames(t *testing.T, s *suite) {
	e := s.connect(t)
	meta := s.meta(t)
	c := s.must(t, e, s.class(), meta)
	_, err := e.Prepare(t.Context(), s.class(), meta)
	require.ErrorIs(t, err, engine.ErrNameTaken)
	require.Zero(t, do(t, c, s.job(t, "nothing"), nil).end.ExitCode)
	require.NoError(t, e.Remove(t.Context(), meta.Name))
	require.Zero(t, do(t, s.must(t, e, s.class(), meta), s.job(t, "nothing"), nil).end.ExitCode)
}

// testSources checks that a bind needs its source, and that a missing source is never created.
func testSources(t *testing.T, s *suite) {
	e := s.connect(t)
	gone := filepath.Join(t.TempDir(), "gone", "below")
	class, meta := s.class(), s.meta(t)
	class.Binds = []spec.Bind{{Role: spec.RoleInput, Target: spec.InputDir, ReadOnly: true}}
	meta.Sources = engine.Sources{spec.RoleInput: gone}
	_, err := e.Prepare(t.Context(), class, meta)
	require.ErrorIs(t, err, engine.ErrNoSource)
	require.NoDirExists(t, filepath.Dir(gone))
	require.Empty(t, s.found(t, e, meta.Name))

	// Existing sources are mounted with their own identity, read-only or writable as requested.
	dir, rw, one := openDir(t), openDir(t), filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("inside"), 0o644))
	require.NoError(t, os.WriteFile(one, []byte("inside"), 0o644))
	meta = s.meta(t)
	class.Binds = []spec.Bind{{Role: "mount-0", Target: "/data/ro", ReadOnly: true}, {Role: "mount-1", Target: "/data/one", ReadOnly: true},
		{Role: spec.RoleFinal, Target: "/data/rw"}}
	meta.Sources = engine.Sources{"mount-0": dir, "mount-1": one, spec.RoleFinal: rw}
	meta.Stat, meta.Witness = []string{"/data/ro", "/data/one", "/data/rw"}, "/data/ro/file"
	c := s.must(t, e, class, meta)
	checkStats(t, c.Ready(), map[string]string{"/data/ro": dir, "/data/one": one, "/data/rw": rw})
	got := do(t, c, s.job(t, "mounts"), nil)
	require.Equal(t, "errno 30 errno 30 errno 30 inside inside\n", got.stdout, got.stderr)
	text, err := os.ReadFile(filepath.Join(rw, "new"))
	require.NoError(t, err)
	require.Equal(t, "inside", string(text))
}

// testMasks checks that masked files and directories are empty and cannot be written.
func testMasks(t *testing.T, s *suite) {
	e := s.connect(t)
	dir, empty := openDir(t), filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "keys"), 0o755))
	for name, text := range map[string]string{"keys/x": "secret", "secret": "secret", "open": "open"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.NoError(t, os.WriteFile(empty, nil, 0o444))
	class, meta := s.class(), s.meta(t)
	class.Binds = []spec.Bind{{Role: "mount-0", Target: "/data", ReadOnly: true}}
	class.Masks = []spec.Mask{{Target: "/data/keys", Folder: true}, {Target: "/data/secret"}}
	meta.Sources = engine.Sources{"mount-0": dir, spec.RoleEmpty: empty}
	got := s.runs(t, e, class, meta, "masked")
	require.Equal(t, "[] '' open\nrefused\nrefused\n", got.stdout)
}

// testDirectoryThatIsGone removes the working directory between Prepare and Start.
func testDirectoryThatIsGone(t *testing.T, s *suite) {
	e := s.connect(t)
	dir := openDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	class, meta := s.class(), s.meta(t)
	class.Binds = []spec.Bind{{Role: spec.RoleFinal, Target: "/data"}}
	class.WorkDir, meta.Sources = "/data/sub", engine.Sources{spec.RoleFinal: dir}
	c := s.must(t, e, class, meta)
	require.NoError(t, os.Remove(filepath.Join(dir, "sub")))
	got := do(t, c, s.job(t, helperNoDirectory), nil)
	require.Equal(t, &engine.LaunchError{Stage: "chdir", Errno: syscall.ENOENT}, got.end.Launch)
	require.True(t, got.end.Reported && got.end.Complete)
}

func testImages(t *testing.T, s *suite) {
	e := s.connect(t)
	_, err := e.Resolve(t.Context(), UnknownImage)
	require.ErrorIs(t, err, images.ErrNotFound)
	require.NotEmpty(t, s.image.ID)
	require.NotEmpty(t, s.image.Platform)
	info, err := e.Info(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, info.ID)
	require.Empty(t, info.Missing)
	require.Equal(t, s.info.ID, info.ID)
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
				stdout := lookFor("ready\n")
				require.NoError(t, c.Start(t.Context(), s.job(t, "ignores"), engine.Streams{Stdout: stdout}))
				stdout.await(t)
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
		}
	}
}

// testCanceled checks that a canceled Prepare leaves nothing behind.
func testCanceled(t *testing.T, s *suite) {
	e := s.connect(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	meta := s.meta(t)
	_, err := e.Prepare(canceled, s.class(), meta)
	require.ErrorIs(t, err, context.Canceled)
	var names []string
	apart := s.New(t)
	for _, after := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond,
		120 * time.Millisecond, 250 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		meta := s.meta(t)
		c, err := apart.Prepare(ctx, s.class(), meta)
		names = append(names, meta.Name)
		if err == nil {
			require.NoError(t, c.Remove(t.Context()))
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		cancel()
	}
	require.NoError(t, apart.Close(), "Close waits until all removals are certain")
	for _, name := range append(names, meta.Name) {
		soon(t, name+" still exists", func() bool { return len(s.found(t, e, name)) == 0 })
	}
}

// testMany runs many containers at once on one engine.
func testMany(t *testing.T, s *suite) {
	e := s.connect(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c, err := e.Prepare(t.Context(), s.class(), s.meta(t))
			if !assert.NoError(t, err) {
				return
			}
			var stdout recorder
			if assert.NoError(t, c.Start(t.Context(), s.job(t, "prints"), engine.Streams{Stdout: &stdout})) {
				end, err := c.Wait(t.Context())
				assert.NoError(t, err)
				assert.True(t, end.Reported && end.Complete && end.ExitCode == 0, "%+v", end)
				assert.Equal(t, 21, strings.Count(stdout.String(), "\n"))
			}
			assert.NoError(t, c.Remove(t.Context()))
		})
	}
	wg.Wait()
}

func testSample(t *testing.T, s *suite) {
	e := s.connect(t)
	c := s.must(t, e, s.class(), s.meta(t))
	stdout := lookFor("ready\n")
	require.NoError(t, c.Start(t.Context(), s.job(t, "spins"), engine.Streams{Stdout: stdout}))
	stdout.await(t)
	var first, second engine.Usage
	soon(t, "no sample", func() bool {
		var ok bool
		first, ok = c.Sample(t.Context())
		return ok && first.CPU > 0 && first.PeakMemory >= 16*mib
	})
	time.Sleep(300 * time.Millisecond)
	second, ok := c.Sample(t.Context())
	require.True(t, ok)
	require.GreaterOrEqual(t, second.CPU, first.CPU)
	require.GreaterOrEqual(t, second.PeakMemory, first.PeakMemory)
	require.NotEmpty(t, second.Source)
	require.NoError(t, c.Signal(t.Context(), engine.Stop))
	end := wait(t, c)
	require.GreaterOrEqual(t, end.Usage.CPU, second.CPU)
	require.GreaterOrEqual(t, end.Usage.PeakMemory, second.PeakMemory)
	require.NoError(t, e.Remove(t.Context(), c.Ref().ID))
	_, ok = c.Sample(t.Context())
	require.False(t, ok, "a removed container has no samples")
}

// testDisconnect checks that Disconnect ends a blocked Wait, and that the container can still be
// signaled, awaited and removed.
func testDisconnect(t *testing.T, s *suite) {
	e := s.connect(t)
	c := s.must(t, e, s.class(), s.meta(t))
	stdout := lookFor("ready\n")
	require.NoError(t, c.Start(t.Context(), s.job(t, "ignores"), engine.Streams{Stdout: stdout}))
	stdout.await(t)
	type answer struct {
		end engine.End
		err error
	}
	ended := make(chan answer, 1)
	go func() {
		end, err := c.Wait(t.Context())
		ended <- answer{end, err}
	}()
	time.Sleep(100 * time.Millisecond)
	c.Disconnect()
	c.Disconnect()
	select {
	case got := <-ended:
		require.ErrorIs(t, got.err, engine.ErrUnavailable, "it has not ended: %+v", got.end)
	case <-time.After(time.Minute):
		t.Fatal("Wait does not return after Disconnect")
	}
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
	e := s.connect(t)
	c := s.must(t, e, s.class(), s.meta(t))
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

// testSignals signals containers that wait for a job or have ended.
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
	e := s.connect(t)
	c := s.must(t, e, s.class(), s.meta(t))
	stdout := &brokenWriter{left: 3}
	require.NoError(t, c.Start(t.Context(), s.job(t, "prints"), engine.Streams{Stdout: stdout}))
	end := wait(t, c)
	require.True(t, end.Reported && end.Complete)
	require.Zero(t, end.ExitCode)
}

// testStuckStdin checks that the end of a job does not wait for a blocked stdin.
func testStuckStdin(t *testing.T, s *suite) {
	e := s.connect(t)
	c := s.must(t, e, s.class(), s.meta(t))
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
	require.Empty(t, c.Ref().Nonce)
	var first, running, ended recorder
	require.NoError(t, c.Start(t.Context(), s.job(t, "prints"), engine.Streams{Stdout: &first}))
	require.Len(t, c.Ref().Nonce, 64)
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
	found := s.found(t, e, meta.Name)
	require.Len(t, found, 1)
	require.Equal(t, c.Ref().ID, found[0].ID)
	require.Subset(t, found[0].Labels, meta.Labels)
	require.True(t, found[0].Running)
	require.False(t, found[0].Ended)
	require.WithinDuration(t, began, found[0].CreatedAt, time.Minute)
	do(t, c, s.job(t, "nothing"), nil)
}

// testForeign checks that a signal from another client of the engine is reported as foreign.
func testForeign(t *testing.T, s *suite) {
	e, other := s.connect(t), s.connect(t)
	c := s.must(t, e, s.class(), s.meta(t))
	stdout := lookFor("ready\n")
	require.NoError(t, c.Start(t.Context(), s.job(t, "ignores"), engine.Streams{Stdout: stdout}))
	stdout.await(t)
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
	stdout := lookFor("ready\n")
	require.NoError(t, c.Start(t.Context(), s.job(t, "sleeps"), engine.Streams{Stdout: stdout}))
	stdout.await(t)
	answered := make(chan error, 1)
	go func() {
		_, err := c.Wait(t.Context())
		answered <- err
	}()
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, closed.Close())
	select {
	case err := <-answered:
		require.Error(t, err)
	case <-time.After(time.Minute):
		t.Error("Wait does not return after Close")
	}
	opened, err := e.Open(t.Context(), c.Ref(), engine.Streams{})
	require.NoError(t, err)
	require.NoError(t, opened.Signal(t.Context(), engine.Stop))
	end := wait(t, opened)
	require.Equal(t, 15, end.Signal, "%+v", end)
	require.NoError(t, opened.Remove(t.Context()))
}

// testDepot copies files to the engine and back.
func testDepot(t *testing.T, s *suite) {
	e := s.connect(t)
	copier, ok := e.(engine.Copier)
	if !ok {
		t.Fatal("the engine is not a Copier; say so in Options.Without")
	}
	meta := s.meta(t)
	id := meta.Labels[spec.LabelRun]
	run := spec.Spec{Class: s.class(), Job: spec.Job{RunID: id}}
	run.Class.Transfer = spec.TransferCopy
	require.ErrorIs(t, copier.FillDepot(t.Context(), id, bytes.NewReader(nil)), engine.ErrNoContainer)
	base, err := copier.MakeDepot(t.Context(), run, meta.Labels)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, copier.RemoveDepot(context.WithoutCancel(t.Context()), id)) })
	_, err = copier.MakeDepot(t.Context(), run, meta.Labels)
	require.ErrorIs(t, err, engine.ErrNameTaken)

	require.NoError(t, copier.FillDepot(t.Context(), id, depotArchive(t)))
	helpers := s.found(t, e, spec.CourierName(id))
	require.Len(t, helpers, 1)
	require.Equal(t, spec.PartCourier, helpers[0].Labels[spec.LabelPart])
	require.False(t, helpers[0].Running)

	class := run.Class
	class.Binds = []spec.Bind{{Role: spec.RoleInput, Target: spec.InputDir, ReadOnly: true}, {Role: spec.RoleFinal, Target: spec.FinalDir}}
	meta.Sources = engine.Sources{spec.RoleInput: base + "/in", spec.RoleFinal: base + "/out/final"}
	got := s.runs(t, e, class, meta, "depot")
	require.Equal(t, "sent True\n", got.stdout)

	// Another client removes the courier.
	require.NoError(t, e.Remove(t.Context(), spec.CourierName(id)))
	_, err = copier.FetchDepot(t.Context(), id, "out/final")
	require.ErrorIs(t, err, engine.ErrNoContainer)
	require.NoError(t, copier.MendDepot(t.Context(), run, meta.Labels))
	archive, err := copier.FetchDepot(t.Context(), id, "out/final")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"final": "", "final/d": "", "final/d/out": "out"}, unpacked(t, archive))

	conversation, err := copier.WatchDepot(t.Context(), run, meta.Labels)
	require.NoError(t, err)
	var answer, trouble recorder
	ended := make(chan struct{})
	go func() {
		_ = conversation.Copy(&answer, &trouble) // Close breaks it off
		close(ended)
	}()
	_, err = io.WriteString(conversation.Stdin(), "free\n")
	require.NoError(t, err)
	soon(t, "the watcher does not answer: "+trouble.String(), func() bool { return strings.Contains(answer.String(), "\n") })
	require.NoError(t, conversation.Close())
	<-ended
	require.NoError(t, conversation.Close())
	s.removesDepot(t, e, copier, id)
}

// removesDepot removes a depot with all its parts.
func (s *suite) removesDepot(t *testing.T, e engine.Engine, copier engine.Copier, id string) {
	t.Helper()
	for range 2 {
		require.NoError(t, copier.RemoveDepot(t.Context(), id))
	}
	depots, err := copier.Depots(t.Context())
	require.NoError(t, err)
	for _, depot := range depots {
		require.NotEqual(t, spec.DepotName(id), depot.Name)
	}
	for _, helper := range []string{spec.CourierName(id), spec.WatcherName(id)} {
		require.Empty(t, s.found(t, e, helper))
	}
}

// unpacked returns the content of an archive by name.
func unpacked(t *testing.T, archive io.ReadCloser) map[string]string {
	t.Helper()
	files := map[string]string{}
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			require.NoError(t, archive.Close())
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(reader)
		require.NoError(t, err)
		files[strings.TrimSuffix(header.Name, "/")] = string(text)
	}
}

func depotArchive(t *testing.T) io.Reader {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, header := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "in/", Mode: 0o755}, {Name: "in/a", Mode: 0o644, Size: 4},
		{Typeflag: tar.TypeSymlink, Name: "in/link", Linkname: "a"},
		{Typeflag: tar.TypeDir, Name: "out/", Mode: 0o755}, {Typeflag: tar.TypeDir, Name: "out/final/", Mode: 0o777, Uid: userID, Gid: userID},
	} {
		require.NoError(t, w.WriteHeader(&header))
		if header.Size > 0 {
			_, err := io.WriteString(w, "sent")
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return &archive
}

// testOrphan kills the process that prepared a container.
func testOrphan(t *testing.T, s *suite) {
	e := s.connect(t)
	t.Run("that waits", func(t *testing.T) {
		meta := s.meta(t)
		ref := s.orphan(t, s.class(), meta, nil)
		soon(t, "it still waits", func() bool {
			found := s.found(t, e, meta.Name)
			return len(found) == 0 || found[0].Ended
		})
		require.NoError(t, e.Remove(t.Context(), ref.ID))
	})
	t.Run("that runs", func(t *testing.T) {
		job := s.job(t, "prints")
		ref := s.orphan(t, s.class(), s.meta(t), &job)
		var stdout recorder
		c, err := e.Open(t.Context(), ref, engine.Streams{Stdout: &stdout})
		require.NoError(t, err)
		end := wait(t, c)
		require.True(t, end.Reported && end.Complete, "%+v", end)
		require.True(t, strings.HasPrefix(stdout.String(), "0\n1\n") && strings.HasSuffix(stdout.String(), "19\nend\n"), stdout.String())
		require.NoError(t, c.Remove(t.Context()))
	})
	t.Run("that runs into its time limit", func(t *testing.T) {
		job := s.job(t, "ignores")
		job.TimeoutSeconds, job.GraceSeconds = 1, 0.5
		ref := s.orphan(t, s.class(), s.meta(t), &job)
		c, err := e.Open(t.Context(), ref, engine.Streams{})
		require.NoError(t, err)
		end := wait(t, c)
		require.True(t, end.Reported && end.Complete, "%+v", end)
		require.Equal(t, engine.ByDeadline, end.Cause)
		require.True(t, end.Escalated)
		require.NoError(t, c.Remove(t.Context()))
	})
	for name, how := range map[string]engine.Signal{"that is stopped": engine.Stop, "that is killed": engine.Kill} {
		t.Run(name, func(t *testing.T) {
			job := s.job(t, "sleeps")
			ref := s.orphan(t, s.class(), s.meta(t), &job)
			c, err := e.Open(t.Context(), ref, engine.Streams{})
			require.NoError(t, err)
			require.NoError(t, c.Signal(t.Context(), how))
			end := wait(t, c)
			require.True(t, end.Reported && end.Complete, "%+v", end)
			require.Equal(t, engine.BySignal, end.Cause)
			require.NoError(t, c.Remove(t.Context()))
		})
	}
}

// testOutage makes the engine unreachable at each call.
func testOutage(t *testing.T, s *suite) {
	if s.Breakable == nil {
		t.Fatal("Options.Breakable is nil; say so in Options.Without")
	}
	s.connect(t) // resolves the image, once
	e, stop, start := s.Breakable(t)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	meta := s.meta(t)
	waiting := s.must(t, e, s.class(), s.meta(t))
	running := s.must(t, e, s.class(), s.meta(t))
	stdout := lookFor("0\n")
	require.NoError(t, running.Start(t.Context(), s.job(t, "prints"), engine.Streams{Stdout: stdout}))
	stdout.await(t)
	lost := make(chan error, 1)
	go func() {
		_, err := running.Wait(t.Context())
		lost <- err
	}()
	time.Sleep(100 * time.Millisecond)

	stop()
	for name, call := range map[string]func(ctx context.Context) error{
		"info":    func(ctx context.Context) error { _, err := e.Info(ctx); return err },
		"resolve": func(ctx context.Context) error { _, err := e.Resolve(ctx, s.Image); return err },
		"prepare": func(ctx context.Context) error { _, err := e.Prepare(ctx, s.class(), meta); return err },
		"open":    func(ctx context.Context) error { _, err := e.Open(ctx, running.Ref(), engine.Streams{}); return err },
		"list":    func(ctx context.Context) error { _, err := e.List(ctx); return err },
		"remove":  func(ctx context.Context) error { return e.Remove(ctx, "evalbox-t"+randomID()) },
		"signal":  func(ctx context.Context) error { return running.Signal(ctx, engine.Stop) },
		"start": func(ctx context.Context) error {
			return waiting.Start(ctx, s.job(t, "nothing"), engine.Streams{})
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := call(ctx)
		cancel()
		assert.ErrorIs(t, err, engine.ErrUnavailable, name)
	}
	select {
	case err := <-lost:
		assert.ErrorIs(t, err, engine.ErrUnavailable, "wait")
	case <-time.After(20 * time.Second):
		t.Error("Wait did not notice")
	}
	start()
	end := wait(t, running)
	require.True(t, end.Reported && end.Complete && end.Interrupted, "%+v", end)
	require.Zero(t, end.ExitCode)
	require.Equal(t, 1, strings.Count(stdout.String(), "19\nend\n"), stdout.String())
	require.Equal(t, 21, strings.Count(stdout.String(), "\n"), "every line once: %q", stdout.String())
	require.Empty(t, s.found(t, e, meta.Name))
	require.False(t, wait(t, waiting).Reported, "its job never arrived")
	require.NoError(t, e.Remove(t.Context(), waiting.Ref().ID))
	require.NoError(t, e.Remove(t.Context(), running.Ref().ID))

	// A container that Prepare had created when the engine went away can be removed by name.
	for _, after := range []time.Duration{5 * time.Millisecond, 40 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		meta, made := s.meta(t), make(chan error, 1)
		go func() {
			_, err := e.Prepare(t.Context(), s.class(), meta)
			made <- err
		}()
		time.Sleep(after)
		stop()
		start()
		if err := <-made; err != nil {
			require.ErrorIs(t, err, engine.ErrUnavailable)
		}
		if !s.Scripted {
			time.Sleep(time.Second) // requests in flight arrive
		}
		require.NoError(t, e.Remove(t.Context(), meta.Name))
		require.Empty(t, s.found(t, e, meta.Name))
	}
}
