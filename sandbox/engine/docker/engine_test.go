//go:build linux

package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// These tests run on the real engine with the debian image. If either is missing they
// fail with instructions: `make test` provides both.

func testEngine(t testing.TB) *adapter {
	t.Helper()
	e, err := FromEnv()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e.(*adapter)
}

// engineClass is a class with the real image, as plans build it.
func engineClass(t testing.TB, e engine.Engine) spec.Class {
	t.Helper()
	catalog, err := images.LoadCatalog(configs.Images(), "configs/images.yaml")
	require.NoError(t, err)
	debian, _ := catalog.Lookup("debian")
	image, err := e.Resolve(t.Context(), debian.Tag())
	require.NoError(t, err)
	class := scriptClass()
	class.Image = spec.Image{Reference: image.Name, ID: image.ID, Platform: image.Platform}
	class.Binds, class.Env = nil, []string{"HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"}
	class.Cgroup.MemoryBytes, class.Cgroup.PIDs = 256<<20, 64
	class.Cgroup.NanoCPUs = 1e9
	return class
}

// testMeta names a container after its test.
func testMeta(t testing.TB) engine.Meta {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
	return engine.Meta{Name: fmt.Sprintf("evalbox-test-%s-%d-%d", name, os.Getpid(), time.Now().UnixNano()),
		Labels: map[string]string{spec.LabelManaged: "true", spec.LabelOwner: owner.This().String(),
			spec.LabelDeadline: time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}}
}

// prepare returns a container that is removed at the end of the test.
func prepare(t testing.TB, e engine.Engine, class spec.Class) engine.Container {
	t.Helper()
	c, err := e.Prepare(t.Context(), class, testMeta(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Remove(context.Background())) })
	return c
}

// output records what a job prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func shell(script string) spec.Job {
	return spec.Job{Command: []string{"/bin/sh", "-c", script}, TimeoutSeconds: 60, GraceSeconds: 2}
}

// runJob runs one job in a fresh container.
func runJob(t testing.TB, e engine.Engine, class spec.Class, job spec.Job, stdin string) (end engine.End, stdout, stderr string) {
	t.Helper()
	c := prepare(t, e, class)
	var out, errs output
	require.NoError(t, c.Start(t.Context(), job, engine.Streams{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs}))
	end, err := c.Wait(t.Context())
	require.NoError(t, err)
	return end, out.String(), errs.String()
}

func TestEngineHello(t *testing.T) {
	e := testEngine(t)
	end, stdout, stderr := runJob(t, e, engineClass(t, e), shell("echo hello; echo oops >&2; exit 3"), "")
	require.Equal(t, "hello\n", stdout)
	require.Equal(t, "oops\n", stderr)
	require.True(t, end.Reported && end.Complete, "%+v", end)
	require.Equal(t, 3, end.ExitCode)
	require.Positive(t, end.Duration)
}

// TestEngineOfNoNetwork: a container without a network looks like a machine without one,
// not like a broken one.
func TestEngineOfNoNetwork(t *testing.T) {
	e := testEngine(t)
	end, stdout, stderr := runJob(t, e, engineClass(t, e), shell(`cat /etc/hosts /etc/resolv.conf /etc/hostname; hostname
for f in hosts resolv.conf hostname; do echo x 2>&- >> /etc/$f && echo "writable $f"; done
python3 - <<'P'
import socket, time
for name in "localhost", "sandbox", "ip6-localhost":
    print(name, sorted({a[4][0] for a in socket.getaddrinfo(name, 1)}))
for family, address in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
    s = socket.create_server((address, 0), family=family)
    c = socket.create_connection(s.getsockname()[:2])
    print("reached", address)
began = time.monotonic()
for host in "example.com", "192.0.2.53", "8.8.8.8", "172.17.0.1", "2001:db8::1":
    try: socket.create_connection((host, 53), timeout=5)
    except OSError as e: print(host, type(e).__name__, e.errno)
print("at once" if time.monotonic() - began < 2 else "slowly")
print([i[1] for i in socket.if_nameindex()])
P`), "")
	require.Zero(t, end.ExitCode, stderr)
	require.Equal(t, hostsText+resolvText+hostnameText+"sandbox\n"+`localhost ['127.0.0.1', '::1']
sandbox ['127.0.0.1']
ip6-localhost ['::1']
reached 127.0.0.1
reached ::1
example.com gaierror -3
192.0.2.53 OSError 101
8.8.8.8 OSError 101
172.17.0.1 OSError 101
2001:db8::1 OSError 101
at once
['lo']
`, stdout)
}

// TestEngineMakesTheInitsVolumeAgain: the volume may be pruned at any time.
func TestEngineMakesTheInitsVolumeAgain(t *testing.T) {
	e := testEngine(t)
	class := engineClass(t, e)
	set, err := initSetOf(class.Image.Platform)
	require.NoError(t, err)
	// A separate volume, so that concurrent tests keep theirs.
	set.volume = "evalbox-init-test" + strconv.Itoa(os.Getpid())
	initSets.Store("amd64", set)
	t.Cleanup(func() {
		initSets.Clear()
		require.NoError(t, e.api.VolumeRemove(context.Background(), set.volume, false))
	})
	prepareAll := func() {
		var all sync.WaitGroup
		for range 4 {
			// As separate processes would.
			other := testEngine(t)
			all.Go(func() {
				c, err := other.Prepare(t.Context(), class, testMeta(t))
				if assert.NoError(t, err) {
					assert.NoError(t, c.Remove(t.Context()))
				}
			})
		}
		all.Wait()
	}
	prepareAll()
	made, err := e.api.VolumeInspect(t.Context(), set.volume)
	require.NoError(t, err)
	require.Equal(t, initLabels(), made.Labels)
	volumes, err := e.Volumes(t.Context())
	require.NoError(t, err)
	for _, volume := range volumes {
		require.NotEqual(t, set.volume, volume.Name)
	}
	c := prepare(t, e, class) // the volume's directory is now known
	require.NoError(t, e.api.VolumeRemove(t.Context(), set.volume, false), "the volume is not in use")
	prepareAll()
	prepare(t, e, class)
	require.NoError(t, c.Start(t.Context(), shell("true"), engine.Streams{}), "a container keeps its init")
	end, err := c.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, end.ExitCode)
	_, err = e.inspect(t.Context(), initHelperName(set))
	require.ErrorIs(t, err, engine.ErrNoContainer)
}

// TestEngineRefusesAnotherInit: only the init that evalbox put into the volume is
// accepted.
func TestEngineRefusesAnotherInit(t *testing.T) {
	e := testEngine(t)
	class := engineClass(t, e)
	binary, err := wire.Init("amd64")
	require.NoError(t, err)
	archive, err := initArchive(bytes.Replace(binary, []byte(wire.BuildID()), []byte(strings.Repeat("0", len(wire.BuildID()))), 1))
	require.NoError(t, err)
	set := initSet{volume: "evalbox-init-other" + strconv.Itoa(os.Getpid()), archive: archive}
	initSets.Store("amd64", set)
	t.Cleanup(func() {
		initSets.Clear()
		require.NoError(t, e.api.VolumeRemove(context.Background(), set.volume, false))
	})
	meta := testMeta(t)
	_, err = e.Prepare(t.Context(), class, meta)
	require.ErrorIs(t, err, engine.ErrProtocol)
	require.ErrorContains(t, err, "docker volume rm "+set.volume)
	_, err = e.inspect(t.Context(), meta.Name)
	require.ErrorIs(t, err, engine.ErrNoContainer)
}

// TestEngineNamesADamagedVolume: after a power failure the init's file may be empty, and
// then no container starts.
func TestEngineNamesADamagedVolume(t *testing.T) {
	e := testEngine(t)
	class := engineClass(t, e)
	archive, err := initArchive(nil)
	require.NoError(t, err)
	set := initSet{volume: "evalbox-init-damaged" + strconv.Itoa(os.Getpid()), archive: archive}
	initSets.Store("amd64", set)
	t.Cleanup(func() {
		initSets.Clear()
		require.NoError(t, e.api.VolumeRemove(context.Background(), set.volume, false))
	})
	_, err = e.Prepare(t.Context(), class, testMeta(t))
	require.ErrorContains(t, err, "docker volume rm "+set.volume)
}

// TestEngineLeavesVolumesOfOthersAlone: a volume with the expected name may lead to any
// directory of the engine's machine.
func TestEngineLeavesVolumesOfOthersAlone(t *testing.T) {
	e := testEngine(t)
	class := engineClass(t, e)
	set, err := initSetOf(class.Image.Platform)
	require.NoError(t, err)
	set.volume = "evalbox-init-foreign" + strconv.Itoa(os.Getpid())
	initSets.Store("amd64", set)
	made, err := e.api.VolumeCreate(t.Context(), volume.CreateOptions{Name: set.volume})
	require.NoError(t, err)
	t.Cleanup(func() {
		initSets.Clear()
		require.NoError(t, e.api.VolumeRemove(context.Background(), set.volume, false))
	})
	_, err = e.Prepare(t.Context(), class, testMeta(t))
	require.ErrorContains(t, err, "it is not ours")
	left, err := os.ReadDir(made.Mountpoint)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestEngineTellsWhyAContainerDoesNotStart also checks that nothing is left behind.
func TestEngineTellsWhyAContainerDoesNotStart(t *testing.T) {
	e := testEngine(t)
	for name, test := range map[string]struct {
		change func(c *spec.Class, m *engine.Meta)
		is     error
		want   string
	}{
		"a limit beyond the kernel's": {func(c *spec.Class, _ *engine.Meta) {
			c.Ulimits = []spec.Ulimit{{Name: "nofile", Soft: 1 << 40, Hard: 1 << 40}}
		},
			engine.ErrNotStarted, "rlimit"},
		"an architecture without init": {func(c *spec.Class, _ *engine.Meta) { c.Image.Platform = "linux/riscv64" }, nil, "riscv64"},
		"another operating system":     {func(c *spec.Class, _ *engine.Meta) { c.Image.Platform = "windows/amd64" }, nil, "windows/amd64"},
		"a source that does not exist": {func(c *spec.Class, m *engine.Meta) {
			c.Binds = []spec.Bind{{Role: spec.RoleInput, Target: spec.InputDir}}
			m.Sources = engine.Sources{spec.RoleInput: "/nowhere/at/all"}
		}, engine.ErrNoSource, "/nowhere/at/all"},
		"an init without memory": {func(c *spec.Class, _ *engine.Meta) { c.Cgroup.MemoryBytes = 1 }, nil, ""},
	} {
		class, meta := engineClass(t, e), testMeta(t)
		test.change(&class, &meta)
		_, err := e.Prepare(t.Context(), class, meta)
		require.ErrorContains(t, err, test.want, name)
		if test.is != nil {
			require.ErrorIs(t, err, test.is, name)
		}
		_, err = e.inspect(t.Context(), meta.Name)
		require.ErrorIs(t, err, engine.ErrNoContainer, name)
	}
}

// TestEngineTellsOfSignalsOfOthers: anybody with access to the engine can end any
// program.
func TestEngineTellsOfSignalsOfOthers(t *testing.T) {
	e := testEngine(t)
	for name, test := range map[string]struct {
		disturb func(id string) error
		check   func(t *testing.T, end engine.End, err error)
	}{
		"stop": {func(id string) error { return e.api.ContainerKill(t.Context(), id, "TERM") },
			func(t *testing.T, end engine.End, err error) {
				t.Helper()
				require.NoError(t, err)
				require.True(t, end.Reported && end.Complete)
				require.Equal(t, engine.BySignal, end.Cause)
				require.Equal(t, 15, end.Signal)
				require.Equal(t, []string{"SIGTERM"}, end.Foreign)
			}},
		"kill": {func(id string) error { return e.api.ContainerKill(t.Context(), id, "KILL") },
			func(t *testing.T, end engine.End, err error) {
				t.Helper()
				require.NoError(t, err)
				require.False(t, end.Reported || end.Complete)
				require.Equal(t, 137, end.ExitCode)
				require.Equal(t, []string{"SIGKILL"}, end.Foreign)
				require.False(t, end.FinishedAt.IsZero())
				require.Positive(t, end.Duration, "by the controller's own clock")
			}},
		"removal": {func(id string) error { return e.Remove(t.Context(), id) },
			func(t *testing.T, end engine.End, err error) {
				t.Helper()
				require.ErrorIs(t, err, engine.ErrNoContainer)
				require.Equal(t, []string{"SIGKILL"}, end.Foreign)
			}},
		"itself": {func(string) error { return nil },
			func(t *testing.T, end engine.End, err error) {
				t.Helper()
				require.NoError(t, err)
				require.Equal(t, engine.ByItself, end.Cause)
				require.Equal(t, 15, end.Signal)
				require.Empty(t, end.Foreign)
				require.NoError(t, end.ForeignErr)
			}},
	} {
		c := prepare(t, e, engineClass(t, e))
		script := "echo on; sleep 50"
		if name == "itself" {
			script = "kill -TERM $$; sleep 50"
		}
		var out output
		require.NoError(t, c.Start(t.Context(), shell(script), engine.Streams{Stdout: &out}))
		if name != "itself" {
			require.Eventually(t, func() bool { return out.String() == "on\n" }, 10*time.Second, time.Millisecond)
		}
		require.NoError(t, test.disturb(c.Ref().ID))
		end, err := c.Wait(t.Context())
		t.Log(name, end, err)
		test.check(t, end, err)
	}
}

// TestEngineKeepsAContainer: a released container ends, and is not removed.
func TestEngineKeepsAContainer(t *testing.T) {
	e := testEngine(t)
	c := prepare(t, e, engineClass(t, e))
	require.NoError(t, c.Start(t.Context(), shell("echo kept; exit 7"), engine.Streams{}))
	_, err := c.Wait(t.Context())
	require.NoError(t, err)
	now, err := e.inspect(t.Context(), c.Ref().ID)
	require.NoError(t, err)
	require.True(t, now.running, "its init is waiting")
	c.Release()
	now, err = e.ended(t.Context(), c.Ref().ID)
	require.NoError(t, err)
	require.False(t, now.running)
	require.Equal(t, 7, now.exitCode)
}

// TestEngineRemovesWithoutWaiting: the removal completes without further calls.
func TestEngineRemovesWithoutWaiting(t *testing.T) {
	e := testEngine(t)
	c := prepare(t, e, engineClass(t, e))
	began := time.Now()
	require.NoError(t, c.Remove(t.Context()))
	require.NoError(t, c.Remove(t.Context()))
	t.Log("removed in", time.Since(began))
	require.Eventually(t, func() bool {
		_, err := e.inspect(t.Context(), c.Ref().ID)
		return errors.Is(err, engine.ErrNoContainer)
	}, 10*time.Second, 10*time.Millisecond)
}
