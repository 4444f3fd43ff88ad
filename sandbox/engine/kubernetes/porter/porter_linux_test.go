package porter

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// joinEnv makes the test's binary join a porter, and become a shell.
const joinEnv = "EVALBOX_TEST_JOIN"

func TestMain(m *testing.M) {
	if line := os.Getenv(joinEnv); line != "" {
		_, _ = os.Stderr.WriteString(Join(line, append([]string{"/bin/sh"}, os.Args[1:]...)).Error())
		os.Exit(99)
	}
	os.Exit(m.Run())
}

// pod is a porter, and a place for a program.
type pod struct {
	Config
	t         *testing.T
	served    chan error
	terminate chan struct{}
}

func newPod(t *testing.T, change func(*Config)) *pod {
	t.Helper()
	// The path of a socket is short.
	dir, err := os.MkdirTemp("", "porter-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	p := &pod{t: t, served: make(chan error, 1), terminate: make(chan struct{})}
	p.Config = Config{Spool: filepath.Join(dir, "s"), Line: filepath.Join(dir, "l"), Volume: filepath.Join(dir, "v"), Window: time.Minute, Limit: 64 << 20}
	for _, each := range []string{p.Spool, p.Line, p.Volume} {
		require.NoError(t, os.Mkdir(each, 0o700))
	}
	if change != nil {
		change(&p.Config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { p.served <- Serve(ctx, p.Config, p.terminate) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-p.served:
		case <-time.After(10 * time.Second):
			t.Error("the porter did not end")
		}
	})
	return p
}

// program starts a shell with streams to the porter.
func (p *pod) program(script string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], "-c", script)
	cmd.Env = append(os.Environ(), joinEnv+"="+p.Line)
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	require.NoError(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		require.Empty(p.t, trouble.String())
	})
	return cmd
}

func (p *pod) dial(context.Context) (io.ReadWriteCloser, error) {
	conn, err := net.Dial("unix", filepath.Join(p.Spool, porterSocket))
	return conn, err
}

// calm makes connections that are closed by the porter: a session that was cut is one that the porter has
// let go.
func (p *pod) calm(ctx context.Context) (io.ReadWriteCloser, error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return calm{conn.(*net.UnixConn)}, nil
}

type calm struct{ *net.UnixConn }

func (c calm) Close() error { return c.CloseWrite() }

// flaky breaks every connection after a random number of bytes in either direction.
func (p *pod) flaky(most int) Dial {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		conn, err := p.dial(ctx)
		if err != nil {
			return nil, err
		}
		return &flaky{ReadWriteCloser: conn, left: 1 + mathrand.IntN(most)}, nil
	}
}

type flaky struct {
	io.ReadWriteCloser
	mu   sync.Mutex
	left int
}

func (f *flaky) spend(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = min(n, f.left)
	f.left -= n
	return n
}

func (f *flaky) Read(p []byte) (int, error) {
	n, err := f.ReadWriteCloser.Read(p)
	if kept := f.spend(n); kept < n {
		return kept, errors.Join(errors.New("the test broke it"), f.Close())
	}
	return n, err
}

func (f *flaky) Write(p []byte) (int, error) {
	if n := f.spend(len(p)); n < len(p) {
		n, _ = f.ReadWriteCloser.Write(p[:n])
		return n, errors.Join(errors.New("the test broke it"), f.Close())
	}
	return f.ReadWriteCloser.Write(p)
}

func ended(t *testing.T, s *Session) error {
	t.Helper()
	select {
	case <-s.Over():
		return s.Why()
	case <-time.After(time.Minute):
		t.Fatal("the session did not end")
		return nil
	}
}

// pass writes the first text of a session and waits until the program's container has it. The porter
// ends when its controller goes before that container has called.
func pass(t *testing.T, s *Session, text string) {
	t.Helper()
	_, err := s.Write([]byte(text))
	require.NoError(t, err)
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.passed == int64(len(text)) }, time.Minute, time.Millisecond)
}

// TestStreamsOverBrokenConnections checks that nothing is lost and nothing comes twice.
func TestStreamsOverBrokenConnections(t *testing.T) {
	p := newPod(t, nil)
	p.program("tee /dev/stderr")
	text := make([]byte, 5<<20)
	_, _ = rand.Read(text)
	var out, err bytes.Buffer
	s := Open(t.Context(), p.flaky(1<<20), "me", time.Minute, &out, &err)
	n, failure := s.Write(text)
	require.NoError(t, failure)
	require.Equal(t, len(text), n)
	s.CloseIn()
	require.NoError(t, ended(t, s))
	require.True(t, bytes.Equal(text, out.Bytes()), "%d of %d bytes", out.Len(), len(text))
	require.True(t, bytes.Equal(text, err.Bytes()), "%d of %d bytes", err.Len(), len(text))
	broken, gap := s.Broken()
	require.True(t, broken)
	require.False(t, gap)
}

// TestAnotherController checks that a second controller gets everything, and that init learns that the
// first one has gone.
func TestAnotherController(t *testing.T) {
	p := newPod(t, nil)
	p.program("echo begun; read line; echo $line; head -c 2 <&3; echo; echo end >&2")
	var first, second, trouble bytes.Buffer
	a := Open(t.Context(), p.calm, "a", time.Minute, &first, io.Discard)
	pass(t, a, "hel")
	both := Open(t.Context(), p.calm, "both", time.Minute, io.Discard, io.Discard)
	require.Eventually(t, func() bool { both.mu.Lock(); defer both.mu.Unlock(); return both.connected }, time.Minute, time.Millisecond)
	both.Cut()
	a.Cut()
	b := Open(t.Context(), p.dial, "b", time.Minute, &second, &trouble)
	_, err := b.Write([]byte("lo\n"))
	require.NoError(t, err)
	require.NoError(t, b.Request(t.Context(), 'T'))
	require.NoError(t, ended(t, b))
	require.Equal(t, "begun\nhello\nGT\n", second.String())
	require.Equal(t, "end\n", trouble.String())
	require.Equal(t, "T", string(b.Asked()))
}

// TestRequestsOverBrokenConnections checks that every request arrives once and in its order, however often
// connections break.
func TestRequestsOverBrokenConnections(t *testing.T) {
	p := newPod(t, nil)
	p.program("head -c 40 <&3")
	var out bytes.Buffer
	most := 100
	dial := func(ctx context.Context) (io.ReadWriteCloser, error) {
		most += 10 // each connection repeats the requests
		return p.flaky(most)(ctx)
	}
	s := Open(t.Context(), dial, "a", time.Minute, &out, io.Discard)
	want := strings.Repeat("TKTT", 10)
	for i := range len(want) {
		require.NoError(t, s.Request(t.Context(), want[i]))
	}
	require.NoError(t, ended(t, s))
	require.Equal(t, want, out.String())
	require.Equal(t, want, string(s.Asked()))
	broken, _ := s.Broken()
	require.True(t, broken)
	require.NoError(t, s.Request(t.Context(), 'T'), "init has ended")
}

// TestRequestThatFails checks that a request whose caller gave up does not arrive later.
func TestRequestThatFails(t *testing.T) {
	p := newPod(t, nil)
	p.program("head -c 1 <&3")
	away := make(chan struct{})
	dial := func(ctx context.Context) (io.ReadWriteCloser, error) {
		select {
		case <-away:
			return p.dial(ctx)
		default:
			return nil, errors.New("the test broke it")
		}
	}
	var out bytes.Buffer
	s := Open(t.Context(), dial, "a", time.Minute, &out, io.Discard)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Request(ctx, 'K'), ErrLost)
	close(away)
	require.NoError(t, s.Request(t.Context(), 'T'))
	require.NoError(t, ended(t, s))
	require.Equal(t, "T", out.String())
}

// TestControllerThatGoes checks that init learns of it, that what it prints meanwhile is kept, and that
// another controller gets it.
func TestControllerThatGoes(t *testing.T) {
	p := newPod(t, func(c *Config) { c.Window = 50 * time.Millisecond })
	p.program("head -c 1 <&3; echo; read line; echo $line")
	s := Open(t.Context(), p.dial, "a", time.Minute, io.Discard, io.Discard)
	pass(t, s, "aga")
	s.Cut()
	require.Eventually(t, func() bool {
		kept, _ := os.ReadFile(filepath.Join(p.Spool, "stdout", "0"))
		return string(kept) == "G\n"
	}, time.Minute, time.Millisecond)
	var out bytes.Buffer
	b := Open(t.Context(), p.dial, "b", time.Minute, &out, io.Discard)
	_, err := b.Write([]byte("in\n"))
	require.NoError(t, err)
	require.NoError(t, ended(t, b))
	require.Equal(t, "G\nagain\n", out.String())
}

// TestNobodyComes checks that a porter without a controller ends.
func TestNobodyComes(t *testing.T) {
	before := firstWindow
	firstWindow = 0
	t.Cleanup(func() { firstWindow = before }) // after the porter has ended
	p := newPod(t, func(c *Config) { c.Window = 10 * time.Millisecond })
	err := <-p.served
	p.served <- err
	require.ErrorContains(t, err, "no controller came")
}

// TestInitWithoutAJob checks that the porter ends with an init that ends because nobody comes back.
func TestInitWithoutAJob(t *testing.T) {
	p := newPod(t, func(c *Config) { c.Window = 300 * time.Millisecond })
	p.program("head -c 1 <&3")
	s := Open(t.Context(), p.dial, "a", time.Minute, io.Discard, io.Discard)
	pass(t, s, "x")
	s.Cut()
	err := <-p.served
	p.served <- err
	require.ErrorContains(t, err, "had no job")
}

// TestLimit checks that the oldest bytes are dropped while nobody listens, and that the gap shows.
func TestLimit(t *testing.T) {
	p := newPod(t, func(c *Config) { c.Limit = segmentSize })
	cmd := p.program("head -c 40000000 /dev/zero; echo the end")
	require.Eventually(t, func() bool {
		parts, _ := os.ReadDir(filepath.Join(p.Spool, "stdout"))
		return len(parts) > 0 && parts[0].Name() == "33554432"
	}, time.Minute, time.Millisecond)
	var out bytes.Buffer
	s := Open(t.Context(), p.dial, "a", time.Minute, &out, io.Discard)
	require.NoError(t, ended(t, s))
	_, gap := s.Broken()
	require.True(t, gap)
	require.True(t, bytes.HasSuffix(out.Bytes(), []byte("\x00the end\n")))
	require.Less(t, out.Len(), 40000000)
	require.NoError(t, cmd.Wait())
}

// TestFilesOverBrokenConnections sends files to the volume and reads them back.
func TestFilesOverBrokenConnections(t *testing.T) {
	p := newPod(t, nil)
	from := filepath.Join(t.TempDir(), "files")
	big := make([]byte, 9<<20)
	_, _ = rand.Read(big)
	require.NoError(t, os.MkdirAll(filepath.Join(from, "shut"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, "big"), big, 0o400))
	require.NoError(t, os.WriteFile(filepath.Join(from, "shut", "secret"), []byte("x"), 0))
	require.NoError(t, os.Symlink("big", filepath.Join(from, "link")))
	require.NoError(t, os.Chmod(filepath.Join(from, "shut"), 0o500))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(from, "shut"), 0o700) })
	var archive bytes.Buffer
	require.NoError(t, Pack(filepath.Dir(from), "files", &archive))
	require.NoError(t, os.Chmod(filepath.Join(from, "shut", "secret"), 0))

	require.NoError(t, Fill(t.Context(), p.flaky(2<<20), time.Minute, bytes.NewReader(archive.Bytes())))
	got := Fetch(t.Context(), p.flaky(2<<20), time.Minute, "files")
	back, err := io.ReadAll(got)
	require.NoError(t, err)
	require.NoError(t, got.Close())
	var there bytes.Buffer
	require.NoError(t, Pack(p.Volume, "files", &there))
	require.Equal(t, sha256.Sum256(there.Bytes()), sha256.Sum256(back))
	require.Equal(t, entries(t, archive.Bytes()), entries(t, back))

	_, err = io.ReadAll(Fetch(t.Context(), p.dial, time.Minute, "files/none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = io.ReadAll(Fetch(t.Context(), p.dial, time.Minute, "files/link"))
	require.ErrorContains(t, err, "is a symbolic link")
	require.Error(t, Fill(t.Context(), p.dial, time.Minute, bytes.NewReader(bytes.Repeat([]byte("not an archive"), 100))))
}

// entries lists an archive: names, modes, targets and sums of content.
func entries(t *testing.T, archive []byte) (list []string) {
	t.Helper()
	for from := tar.NewReader(bytes.NewReader(archive)); ; {
		head, err := from.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		content, err := io.ReadAll(from)
		require.NoError(t, err)
		list = append(list, fmt.Sprintf("%s %v %s %x", head.Name, head.FileInfo().Mode(), head.Linkname, sha256.Sum256(content)))
	}
}

// TestGate checks that the program's container waits.
func TestGate(t *testing.T) {
	p := newPod(t, nil)
	waited := make(chan error, 1)
	go func() { waited <- Await(p.Spool) }()
	select {
	case err := <-waited:
		t.Fatal("it did not wait", err)
	case <-time.After(20 * time.Millisecond): // it has certainly called by now, or calls later
	}
	for range 2 {
		require.NoError(t, Start(t.Context(), p.dial, time.Minute))
	}
	require.NoError(t, <-waited)
	require.NoError(t, Await(p.Spool))
}
