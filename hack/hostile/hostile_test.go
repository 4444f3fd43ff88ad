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

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/sandbox"
	containers "github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
	"github.com/evalbox/evalbox/sandbox/probe"
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

// clusterImage is the image debian of the cluster; empty where an engine of DOCKER_HOST is asked.
func clusterImage() string { return os.Getenv("EVALBOX_KUBERNETES_IMAGE") }

// connect returns the engine that is asked.
func connect() (containers.Engine, error) {
	if clusterImage() == "" {
		return docker.FromEnv()
	}
	// The pods of many runs share the node.
	return kubernetes.Connect(containers.Cluster{Programs: os.Getenv("EVALBOX_KUBERNETES_PROGRAMS"), CPUShare: 0.05})
}

func runtimeName() string { return os.Getenv("EVALBOX_HOSTILE_RUNTIME") }

// engineName is the head of the column of this engine and this user.
func engineName() (string, error) {
	e, err := connect()
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
	return strings.Join([]string{version, cmp.Or(runtimeName(), info.Host.DefaultRuntime, "pod"), user}, " "), nil
}

// newRunner returns a runner with a state directory of its own. At the end of the test none of
// its containers is left.
func newRunner(t *testing.T, opts ...sandbox.Option) *sandbox.Runner {
	t.Helper()
	return runnertest.Open(t, connect, filepath.Join(tempDir(t), "state"), opts...)
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
		Request: sandbox.Request{Image: cmp.Or(clusterImage(), "debian"), Runtime: runtime},
		Machine: probe.Machine{Runtime: runtime, Cgroup: info.Host.CgroupVersion, Root: os.Geteuid() == 0, Copy: clusterImage() != "", Pod: clusterImage() != ""}}
}

// report records a verdict, and fails the test if an answer differs.
func report(t *testing.T, v probe.Verdict) {
	t.Helper()
	table.add(v)
	for _, d := range v.Differs {
		t.Errorf("%s/%s: %s", v.Group, v.Name, d)
	}
}

// TestEngineQuestions has one container answer all questions of a file.
func TestEngineQuestions(t *testing.T) {
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

// TestEngineRuns has each program run in a container of its own.
func TestEngineRuns(t *testing.T) {
	t.Setenv("FAKE_API_KEY", secret)
	p := place(t)
	p.Request.Env = map[string]string{"PROBE": marker()}
	t.Run("all", func(t *testing.T) {
		for _, r := range probe.Runs() {
			if r.Long && !full() || !r.Deep && testing.Short() {
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

// requireNoProcess makes sure that no program of this process is alive on the machine. Of a
// cluster it does so after the node has removed the pods.
func requireNoProcess(t *testing.T) {
	t.Helper()
	if clusterImage() != "" {
		require.Eventually(t, func() bool { return len(programsAlive(t)) == 0 }, 30*time.Second, 50*time.Millisecond)
	}
	require.Empty(t, programsAlive(t), "programs are alive")
}

// programsAlive are the directories of /proc of the programs of this process.
func programsAlive(t *testing.T) (alive []string) {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range environs {
		text, err := os.ReadFile(path)
		if err == nil && slices.Contains(strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00"), "PROBE="+marker()) {
			alive = append(alive, filepath.Dir(path))
		}
	}
	return alive
}
