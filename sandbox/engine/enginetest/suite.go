package enginetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Options describe an engine for [Run].
type Options struct {
	// New connects to the engine, each time as another process would. The suite closes the
	// returned engine.
	New func(t *testing.T) engine.Engine
	// Image is the reference of an image that has python3.
	Image string
	// Class adapts the class of every container to the engine.
	Class func(class *spec.Class)
	// Scripted means that the engine runs the functions of the cases, as [NewScripted]
	// does, and that its containers have no kernel.
	Scripted bool
	// Orphan prepares a container in another process, starts job in it unless job is nil, and
	// kills the process. If Orphan is nil, the suite uses the test's own binary.
	Orphan func(t *testing.T, class spec.Class, meta engine.Meta, job *spec.Job) engine.Ref
	// Breakable connects to the engine in a way that stop breaks, including existing
	// connections, and start restores. The containers keep running meanwhile.
	Breakable func(t *testing.T) (e engine.Engine, stop, start func())
	// Labels are added to all containers, so that those of a killed test can be found.
	Labels map[string]string
	// Without lists what the engine cannot do as "name: reason", with the name of a group or
	// of a case. The list is printed. A group or case that cannot run and is not listed fails.
	Without []string
}

// orphanEnv is the variable that says what the test's own binary has to prepare.
const orphanEnv = "EVALBOX_ENGINETEST_ORPHAN"

// labelSuite distinguishes the containers of one suite from those of others.
const labelSuite = "org.evalbox.test.suite"

// Run checks that an engine fulfills the contract. Call it from a test of its own.
func Run(t *testing.T, options Options) {
	s := &suite{Options: options, id: randomID(), top: t.Name()}
	if text := os.Getenv(orphanEnv); text != "" {
		s.beOrphan(t, text)
	}
	for _, without := range options.Without {
		t.Log("without ", without)
	}
	type group struct {
		name string
		test func(t *testing.T, s *suite)
	}
	t.Run("apart", func(t *testing.T) { // groups that do not disturb each other
		s.programs(t)
		for _, group := range []group{
			{"ready", testReady}, {"names", testNames}, {"sources", testSources}, {"masks", testMasks}, {"directory", testDirectoryThatIsGone},
			{"images", testImages}, {"removal", testRemoval}, {"canceled", testCanceled}, {"many", testMany}, {"sample", testSample},
			{"disconnect", testDisconnect}, {"waiting", testWaiting}, {"signals", testSignals}, {"writers", testWriters},
			{"stuck stdin", testStuckStdin}, {"unasked stdin", testUnaskedStdin}, {"release", testRelease}, {"open", testOpen}, {"depot", testDepot},
			{"list", testList}, {"foreign", testForeign}, {"relay", testRelay}, {"close", testClose}, {"attacks", testAttacks},
		} {
			t.Run(group.name, func(t *testing.T) {
				s.skipWithout(t, group.name)
				t.Parallel()
				group.test(t, s)
			})
		}
	})
	for _, group := range []group{{"orphan", testOrphan}, {"outage", testOutage}} {
		t.Run(group.name, func(t *testing.T) {
			s.skipWithout(t, group.name)
			group.test(t, s)
		})
	}
	s.nothingLeft(t)
}

type suite struct {
	Options
	id, top string
	once    sync.Once
	image   images.Resolved
	info    engine.Info
}

func (s *suite) skipWithout(t *testing.T, name string) {
	for _, without := range s.Without {
		if what, reason, _ := strings.Cut(without, ": "); what == name {
			t.Skip(reason)
		}
	}
}

// connect returns an engine that is closed at the end of the test.
func (s *suite) connect(t *testing.T) engine.Engine {
	t.Helper()
	e := s.New(t)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	s.once.Do(func() {
		var err error
		s.image, err = e.Resolve(t.Context(), s.Image)
		require.NoError(t, err)
		s.info, err = e.Info(t.Context())
		require.NoError(t, err)
	})
	return e
}

func randomID() string {
	raw := make([]byte, 5)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// Settings of every class of the suite.
const (
	mib      = 1 << 20
	memory   = 128 * mib
	pids     = 24
	noFile   = 256
	tmpSize  = 16 * mib
	shmSize  = 8 * mib
	userID   = 64646
	classEnv = "of the class"
)

func (s *suite) class() spec.Class {
	class := spec.Class{
		Image:   spec.Image{Reference: s.image.Reference, ID: s.image.ID, Platform: s.image.Platform},
		Runtime: s.info.Host.DefaultRuntime, User: spec.DedicatedUser, WorkDir: spec.WorkDir, Network: "none",
		ReadOnlyRoot: true, NoNewPrivileges: true, CapDrop: []string{"ALL"}, Seccomp: spec.DefaultSeccomp(), IPC: "private",
		Cgroup:  spec.Cgroup{Version: s.info.Host.CgroupVersion, MemoryBytes: memory, NanoCPUs: 1e9, PIDs: pids, ShmBytes: shmSize},
		Ulimits: []spec.Ulimit{{Name: "core"}, {Name: "nofile", Soft: noFile, Hard: noFile}},
		Tmpfs: []spec.Tmpfs{{Target: spec.TmpDir, SizeBytes: tmpSize, Inodes: 1000},
			{Target: spec.WorkDir, SizeBytes: tmpSize, Inodes: 1000}},
		Env: []string{"CHANGED=" + classEnv, "HOME=/tmp", "KEPT=" + classEnv},
		Log: spec.BoundedLog(), Transfer: spec.TransferBind,
	}
	if s.Class != nil {
		s.Class(&class)
	}
	return class
}

func (s *suite) meta(t *testing.T) engine.Meta {
	id := "t" + randomID()
	labels := map[string]string{spec.LabelManaged: "true", spec.LabelRun: id, spec.LabelName: t.Name(), labelSuite: s.id}
	maps.Copy(labels, s.Labels)
	return engine.Meta{Name: spec.Job{RunID: id}.ContainerName(), Labels: labels}
}

// python is a job that runs a program. A scripted engine finds the program by its name.
func python(name, program string) spec.Job {
	return spec.Job{Name: name, Command: []string{"python3", "-u", "-c", program}, TimeoutSeconds: 120, GraceSeconds: 2}
}

// must prepares a container that is removed at the end of the test.
func (s *suite) must(t *testing.T, e engine.Engine, class spec.Class, meta engine.Meta) engine.Container {
	t.Helper()
	c, err := e.Prepare(t.Context(), class, meta)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := c.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("removing %s: %v", meta.Name, err)
		}
	})
	return c
}

// found lists the containers of this suite: all, or those of one name.
func (s *suite) found(t *testing.T, e engine.Engine, name string) []engine.Found {
	t.Helper()
	all, err := e.List(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(f engine.Found) bool {
		return f.Labels[labelSuite] != s.id || name != "" && f.Name != name
	})
}

func (s *suite) nothingLeft(t *testing.T) {
	e := s.connect(t)
	for deadline := time.Now().Add(30 * time.Second); len(s.found(t, e, "")) > 0 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond) // the last ones are still being removed
	}
	for _, found := range s.found(t, e, "") {
		t.Errorf("%s of %s is left: %s", found.Name, found.Labels[spec.LabelName], found.Status)
		if err := e.Remove(t.Context(), found.ID); err != nil {
			t.Error(err)
		}
	}
	if copier, ok := e.(engine.Copier); ok {
		depots, err := copier.Depots(t.Context())
		require.NoError(t, err)
		for _, depot := range depots {
			if depot.Labels[labelSuite] == s.id {
				t.Errorf("the volume %s is left", depot.Name)
			}
		}
	}
}

// observed is what a job did.
type observed struct {
	end            engine.End
	ready          wire.Ready
	stdout, stderr string
	took           time.Duration // from Start to the end of Wait
}

// recorder collects a stream, and can wait for a text in it.
type recorder struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	seen chan struct{}
}

// lookFor returns a recorder that can wait for a text.
func lookFor(text string) *recorder { return &recorder{want: text, seen: make(chan struct{})} }

func (r *recorder) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(text)
	if r.want != "" && bytes.Contains(r.text.Bytes(), []byte(r.want)) {
		close(r.seen)
		r.want = ""
	}
	return len(text), nil
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// await waits for the text, at most a minute.
func (r *recorder) await(t *testing.T) {
	t.Helper()
	select {
	case <-r.seen:
	case <-time.After(time.Minute):
		t.Fatalf("%q was not printed, only %q", r.want, r)
	}
}

// patience is the timeout for any end; no working engine reaches it.
const patience = 2 * time.Minute

// wait waits for the end of a job.
func wait(t *testing.T, c engine.Container) engine.End {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	end, err := c.Wait(ctx)
	require.NoError(t, err)
	return end
}

// do runs a job and waits for its end.
func do(t *testing.T, c engine.Container, job spec.Job, stdin io.Reader) observed {
	t.Helper()
	var stdout, stderr recorder
	began := time.Now()
	require.NoError(t, c.Start(t.Context(), job, engine.Streams{Stdin: stdin, Stdout: &stdout, Stderr: &stderr}))
	end := wait(t, c)
	return observed{end: end, ready: c.Ready(), stdout: stdout.String(), stderr: stderr.String(), took: time.Since(began)}
}

// runs prepares a container, runs one program in it and requires exit code 0.
func (s *suite) runs(t *testing.T, e engine.Engine, class spec.Class, meta engine.Meta, name string) observed {
	t.Helper()
	got := do(t, s.must(t, e, class, meta), s.job(t, name), nil)
	require.True(t, got.end.Reported && got.end.Complete, "%+v", got.end)
	require.Zero(t, got.end.ExitCode, got.stderr)
	require.Zero(t, got.end.Signal, got.stderr)
	return got
}

// job returns the job of a program in helpers.
func (s *suite) job(t *testing.T, name string) spec.Job {
	t.Helper()
	program, ok := helpers[name]
	require.True(t, ok, name)
	return python(name, program.python)
}

// NewScripted returns a fake that runs the functions of the suite's cases.
func NewScripted() *Fake {
	f := NewFake(func(p *Program) int {
		if c := findCase(p.Job.Name); c != nil {
			return c.fake(p)
		}
		return helpers[p.Job.Name].fake(p)
	})
	f.Launch = func(job spec.Job) *engine.LaunchError {
		if c := findCase(job.Name); c != nil {
			return c.want.launch
		}
		if job.Name == helperNoDirectory {
			return &engine.LaunchError{Stage: "chdir", Errno: syscall.ENOENT}
		}
		return nil
	}
	return f
}

func findCase(name string) *programCase {
	if i := slices.IndexFunc(cases(), func(c programCase) bool { return c.name == name }); i >= 0 {
		return &cases()[i]
	}
	return nil
}

// programs runs all cases, each in a container of its own.
func (s *suite) programs(t *testing.T) {
	e := s.connect(t)
	var missing []string
	for _, c := range cases() {
		if s.Scripted && c.fake == nil && c.want.launch == nil {
			missing = append(missing, c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s.skipWithout(t, c.name)
			t.Parallel()
			s.program(t, e, c)
		})
	}
	if len(missing) > 0 {
		t.Logf("without a kernel: %s", strings.Join(missing, ", "))
	}
}

func (s *suite) program(t *testing.T, e engine.Engine, c programCase) {
	class, job := s.class(), python(c.name, c.python)
	if c.class != nil {
		c.class(&class)
	}
	if c.job != nil {
		c.job(&job)
	}
	var stdin io.Reader
	if c.stdin != nil {
		stdin, job.Stdin = c.stdin(), true
	}
	container := s.must(t, e, class, s.meta(t))
	stdout, stderr := lookFor("ready\n"), &recorder{}
	var to io.Writer = stdout
	hashes := newHashes()
	streams := engine.Streams{Stdin: stdin, Stdout: to, Stderr: stderr}
	if c.hashed {
		streams.Stdout, streams.Stderr = hashes.stdout, hashes.stderr
	}
	began := time.Now()
	require.NoError(t, container.Start(t.Context(), job, streams))
	if len(c.signals) > 0 {
		stdout.await(t)
	}
	for _, how := range c.signals {
		require.NoError(t, container.Signal(t.Context(), how))
	}
	end := wait(t, container)
	got := observed{end: end, ready: container.Ready(), stdout: stdout.String(), stderr: stderr.String(), took: time.Since(began)}
	if c.hashed {
		got.stdout, got.stderr = hashes.sums()
	}
	if c.oneOf != nil {
		c.want = c.oneOf(end)
	}
	c.want.compare(t, got)
	if c.check != nil {
		c.check(t, got)
	}
}

// compare compares the parts of an end that a case specifies.
func (w want) compare(t *testing.T, got observed) {
	t.Helper()
	end := got.end
	about := fmt.Sprintf("%+v\nstdout %.300q\nstderr %.2000s", end, got.stdout, got.stderr)
	if w.unreported {
		require.False(t, end.Reported, about)
		require.False(t, end.Complete, about)
		assert.False(t, end.Interrupted, about)
		assert.Equal(t, w.oom, end.OOMKilled, about)
		assert.Empty(t, end.Foreign, about)
		assert.NoError(t, end.ForeignErr, about)
		return
	}
	require.True(t, end.Reported, about)
	require.True(t, end.Complete, about)
	require.False(t, end.Interrupted, about)
	require.Equal(t, w.launch, end.Launch, about)
	if w.launch != nil {
		require.Empty(t, got.stdout+got.stderr, about)
		return
	}
	if w.signal == 0 {
		assert.Equal(t, w.code, end.ExitCode, about)
	}
	assert.Equal(t, w.signal, end.Signal, about)
	assert.Equal(t, w.cause, end.Cause, about)
	if w.mayEscalate == "" {
		assert.Equal(t, w.escalated, end.Escalated, about)
	}
	assert.Equal(t, w.oom, end.OOMKilled, about)
	assert.Zero(t, end.ProcessesLeft, about)
	assert.Empty(t, end.Foreign, about)
	assert.NoError(t, end.ForeignErr, about)
	assert.False(t, end.StartedAt.IsZero(), about)
	assert.False(t, end.FinishedAt.Before(end.StartedAt), about)
	assert.LessOrEqual(t, end.Duration, got.took, about)
	if w.duration > 0 {
		assert.InDelta(t, w.duration.Seconds(), end.Duration.Seconds(), 0.9, about)
	}
	if w.stdout != "" {
		assert.Equal(t, w.stdout, got.stdout)
	}
	if w.stderr != "" {
		assert.Equal(t, w.stderr, got.stderr)
	}
}

// orphaned is what the test's own binary has to prepare.
type orphaned struct {
	Class spec.Class  `json:"class"`
	Meta  engine.Meta `json:"meta"`
	Job   *spec.Job   `json:"job"`
}

// beOrphan prepares a container in another process and waits to be killed.
func (s *suite) beOrphan(t *testing.T, text string) {
	var what orphaned
	require.NoError(t, json.Unmarshal([]byte(text), &what)) //nolint:musttag // read by this very program
	c, err := s.New(t).Prepare(t.Context(), what.Class, what.Meta)
	require.NoError(t, err)
	if what.Job != nil {
		require.NoError(t, c.Start(t.Context(), *what.Job, engine.Streams{Stdout: io.Discard, Stderr: io.Discard}))
	}
	ref, err := json.Marshal(c.Ref())
	require.NoError(t, err)
	_, err = fmt.Fprintf(os.Stdout, "\norphan=%s\n", ref)
	require.NoError(t, err)
	select {}
}

// orphan prepares a container in another process and kills that process.
func (s *suite) orphan(t *testing.T, class spec.Class, meta engine.Meta, job *spec.Job) engine.Ref {
	t.Helper()
	if s.Orphan != nil {
		return s.Orphan(t, class, meta, job)
	}
	text, err := json.Marshal(orphaned{class, meta, job}) //nolint:musttag // read by this very program
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+regexp.QuoteMeta(s.top)+"$") //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), orphanEnv+"="+string(text))
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	var ref engine.Ref
	var said strings.Builder
	for lines := bufio.NewScanner(stdout); ref.ID == "" && lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if text, ok := strings.CutPrefix(lines.Text(), "orphan="); ok {
			require.NoError(t, json.Unmarshal([]byte(text), &ref))
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.NotEmpty(t, ref.ID, said.String())
	return ref
}
