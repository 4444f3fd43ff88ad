//go:build linux

package hostile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/probe"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// secret is in the environment of the controller, under the names that programs look for.
const secret = "canary-of-the-controller-51c3"

var (
	table  collector
	engine = sync.OnceValues(engineName)
)

func TestMain(m *testing.M) {
	code := m.Run()
	if dir := os.Getenv("EVALBOX_HOSTILE_TABLE"); dir != "" && len(table.all) > 0 {
		name, err := engine()
		if err == nil {
			err = table.save(dir, name)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "hostile:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func full() bool { return os.Getenv("EVALBOX_HOSTILE") == "full" }

// pooled reports whether the containers wait for their programs in a pool.
func pooled() bool { return os.Getenv("EVALBOX_HOSTILE_POOL") != "" }

func runtimeName() string { return os.Getenv("EVALBOX_HOSTILE_RUNTIME") }

// engineName is the head of the column of this engine and this user.
func engineName() (string, error) {
	e, err := docker.FromEnv()
	if err != nil {
		return "", err
	}
	defer e.Close()
	info, err := e.Info(context.Background())
	if err != nil {
		return "", err
	}
	user := "root"
	if os.Geteuid() != 0 {
		user = "user"
	}
	if pooled() {
		user += " pool"
	}
	version, _, _ := strings.Cut(info.Version, "+")
	return strings.Join([]string{version, cmp.Or(runtimeName(), info.Host.DefaultRuntime), user}, " "), nil
}

// newRunner returns a runner with a state directory of its own. At the end of the test none of
// its containers is left.
func newRunner(t *testing.T, opts ...sandbox.Option) *sandbox.Runner {
	t.Helper()
	e, err := docker.FromEnv()
	require.NoError(t, err)
	catalog, err := images.LoadCatalog(configs.Images(), "configs/images.yaml")
	require.NoError(t, err)
	state := filepath.Join(tempDir(t), "state")
	r, err := sandbox.New(append([]sandbox.Option{sandbox.WithEngine(e), sandbox.WithCatalog(catalog), sandbox.WithStateDir(state)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		requireNoContainer(t, spec.LabelState+"="+state)
	})
	return r
}

// tempDir is a directory that every user may enter, so that programs of other users can
// reach files in it.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "evalbox-hostile-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// requireNoContainer waits until the engine has removed all containers with a label.
func requireNoContainer(t *testing.T, label string) {
	t.Helper()
	endpoint, err := dockerhost.Find(dockerhost.Address{})
	require.NoError(t, err)
	api, err := endpoint.Client()
	require.NoError(t, err)
	defer api.Close()
	require.Eventually(t, func() bool {
		left, err := api.ContainerList(context.Background(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
		return err == nil && len(left) == 0
	}, 30*time.Second, 50*time.Millisecond, "containers are left")
}

// place is where the probes of a test run.
func place(t *testing.T) probe.Place {
	t.Helper()
	var opts []sandbox.Option
	if pooled() {
		opts = append(opts, sandbox.WithPool(sandbox.Pool{Size: 1}))
	}
	r := newRunner(t, opts...)
	info, err := r.Info(t.Context())
	require.NoError(t, err)
	runtime := cmp.Or(runtimeName(), info.Host.DefaultRuntime)
	return probe.Place{Runner: r, Dir: tempDir(t), Secrets: []string{secret}, Waited: pooled(),
		Request: sandbox.Request{Image: "debian", Runtime: runtime},
		Machine: probe.Machine{Runtime: runtime, Cgroup: info.Host.CgroupVersion, Root: os.Geteuid() == 0}}
}

// report records a verdict, and fails the test if an answer differs.
func report(t *testing.T, v probe.Verdict) {
	t.Helper()
	table.add(v)
	for _, d := range v.Differs {
		t.Errorf("%s/%s: %s", v.Group, v.Name, d)
	}
}

// TestQuestions has one container answer all questions of a file.
func TestQuestions(t *testing.T) {
	t.Setenv("FAKE_API_KEY", secret)
	p := place(t)
	for _, b := range probe.Batches() {
		t.Run(b.Group, func(t *testing.T) {
			verdicts := p.Ask(t.Context(), b)
			require.Len(t, verdicts, len(b.Questions))
			for _, v := range verdicts {
				report(t, v)
			}
		})
	}
	requireNoProcess(t)
}

// TestRuns has each program run in a container of its own.
func TestRuns(t *testing.T) {
	t.Setenv("FAKE_API_KEY", secret)
	p := place(t)
	p.Request.Env = map[string]string{"PROBE": marker()}
	t.Run("all", func(t *testing.T) {
		for _, r := range probe.Runs() {
			if r.Long && !full() {
				continue
			}
			t.Run(r.Group+"/"+r.Name, func(t *testing.T) {
				if !pooled() { // whose pool has one container
					t.Parallel()
				}
				report(t, p.Try(t.Context(), r))
			})
		}
	})
	requireNoProcess(t)
}

// marker is in the environment of the programs of this process.
func marker() string { return fmt.Sprintf("evalbox-probe-of-%d", os.Getpid()) }

// requireNoProcess makes sure that no program of this process is alive on the machine.
func requireNoProcess(t *testing.T) {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range environs {
		text, err := os.ReadFile(path)
		if err == nil && slices.Contains(strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00"), "PROBE="+marker()) {
			t.Errorf("a program is alive: %s", path)
		}
	}
}
