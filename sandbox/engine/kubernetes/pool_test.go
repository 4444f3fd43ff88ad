//go:build linux && cluster

package kubernetes_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
)

// seeing prints what the program has of its files, tries to change them, and leaves outputs.
const seeing = `
import json, os, sys
seen = {}
for top in ("/work/input", "/work/extra", "/work/one.txt", sys.argv[0], "/work/final"):
    for path in [top] + sorted(os.path.join(at, name) for at, dirs, files in os.walk(top) for name in dirs + files):
        info = os.lstat(path)
        about = [oct(info.st_mode), info.st_uid, info.st_gid, info.st_nlink]
        if top not in ("/work/final", sys.argv[0]) and not os.path.islink(path): # they are of this run
            about.append(info.st_mtime)
        if os.path.isfile(path):
            about.append(open(path).read() if path != sys.argv[0] else "program")
        if top != "/work/final":
            for change in (lambda: open(path if not os.path.isdir(path) else path + "/new", "a"), lambda: os.chmod(path, 0o777)):
                try:
                    change()
                    about.append("changed")
                except OSError as error:
                    about.append(error.strerror)
        seen[path] = about
seen["mounts"] = sorted(" ".join(line.split()[4:6]) for line in open("/proc/self/mountinfo"))
print(json.dumps(seen, indent=1), input())
os.mkdir("/work/final/sub")
open("/work/final/sub/out", "w").write(sys.stdin.read())
os.chmod("/work/final/sub/out", 0o640)
`

// whole is a result without what differs between two runs of one program: IDs, times and use.
func whole(t *testing.T, res *result.Result) map[string]any {
	t.Helper()
	text, err := json.Marshal(res)
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(text, &all))
	maps.DeleteFunc(all, func(name string, _ any) bool {
		return slices.Contains([]string{"id", "record_dir", "started_at", "finished_at", "duration_seconds", "setup_seconds", "teardown_seconds", "metrics", "pool", "resources"}, name)
	})
	image, ok := all["image"].(map[string]any)
	require.True(t, ok)
	delete(image, "reported") // a run that ends early does not have it yet
	return all
}

// runner returns a runner of a lab, whose Jobs are gone at the end.
func (l *lab) runner(opts ...sandbox.Option) *sandbox.Runner {
	l.t.Helper()
	l.config.Window = 0
	e, err := kubernetes.Connect(l.config)
	require.NoError(l.t, err)
	r, err := sandbox.New(append([]sandbox.Option{sandbox.WithEngine(e), sandbox.WithStateDir(l.t.TempDir())}, opts...)...)
	require.NoError(l.t, err)
	l.t.Cleanup(func() {
		require.NoError(l.t, r.Close())
		require.Empty(l.t, l.jobs())
		waiting, err := os.ReadDir(r.Store().PoolDir())
		if !os.IsNotExist(err) {
			require.NoError(l.t, err)
		}
		require.Empty(l.t, waiting)
	})
	return r
}

// jobs are the names of the Jobs that are not being removed.
func (l *lab) jobs() (names []string) {
	l.t.Helper()
	list, err := l.k.BatchV1().Jobs(l.namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(l.t, err)
	for _, job := range list.Items {
		if job.DeletionTimestamp == nil {
			names = append(names, job.Name)
		}
	}
	return names
}

// files is a request with every kind of file, for a program that looks at them.
func files(t *testing.T, content string) sandbox.Request {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		require.NoError(t, os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)))
		return path
	}
	write("input/sub/run.sh", content, 0o755)
	write("input/data", content, 0o600)
	write("input/hidden", "secret", 0o644)
	write("extra/in/deep", content, 0o644)
	require.NoError(t, os.Symlink("sub/run.sh", filepath.Join(dir, "input", "link")))
	return sandbox.Request{Image: os.Getenv("EVALBOX_KUBERNETES_IMAGE"), Script: write("look.py", seeing, 0o644), Input: filepath.Join(dir, "input"),
		Mounts: []sandbox.Mount{{Source: filepath.Join(dir, "extra"), Target: "/work/extra"}, {Source: write("one", content, 0o644), Target: "/work/one.txt"}},
		Masks:  []string{"/work/input/hidden"}, User: "64641:64641",
		Limits: policy.Limits{CPUs: 0.5, Memory: 128 * policy.MiB, Timeout: endOf}}
}

// TestPoolGivesTheSameResults: a run that takes a pod which waited has the result of one that starts its
// own, also with other contents of its files.
func TestPoolGivesTheSameResults(t *testing.T) {
	l := newLab(t, nil)
	cold, warm := l.runner(), l.runner(sandbox.WithPool(sandbox.Pool{Size: 2}))
	run := func(r *sandbox.Runner, req sandbox.Request) *result.Result {
		req.Final = filepath.Join(t.TempDir(), "final")
		res, err := r.Run(t.Context(), req, sandbox.IO{Stdin: strings.NewReader("line\nrest")})
		require.NoError(t, err)
		require.Equal(t, result.StatusExited, res.Status, res.Stderr)
		require.Zero(t, res.ExitCode, res.Stderr)
		out, err := os.ReadFile(filepath.Join(req.Final, "sub", "out"))
		require.NoError(t, err)
		require.Equal(t, "rest", string(out))
		require.NotContains(t, res.Stdout, "changed")
		require.NotContains(t, res.Stdout, "secret")
		require.Equal(t, res.Pool != nil, r == warm)
		if r == warm {
			require.Equal(t, &result.Pool{Waited: true}, res.Pool)
		}
		return res
	}
	first, second := files(t, "first"), files(t, "the second, which is longer")
	require.NoError(t, warm.Warm(t.Context(), first, 2))
	require.Len(t, l.jobs(), 2)
	for _, req := range []sandbox.Request{first, second, first} {
		want, got := run(cold, req), run(warm, req)
		require.Equal(t, strings.Split(want.Stdout, "\n"), strings.Split(got.Stdout, "\n"))
		wanted, whole := whole(t, want), whole(t, got)
		for _, each := range []map[string]any{wanted, whole} {
			delete(each, "final_dir")
		}
		require.Equal(t, wanted, whole)
		require.NoError(t, warm.Warm(t.Context(), second, 1))
	}
	larger := first
	larger.Limits.Disk = 64 * policy.MiB
	larger.Final = filepath.Join(t.TempDir(), "final")
	res, err := warm.Run(t.Context(), larger, sandbox.IO{Stdin: strings.NewReader("line\n")})
	require.NoError(t, err)
	require.Equal(t, &result.Pool{Reason: "no container of its class was waiting"}, res.Pool, "its volume has another size")
}

// TestPoolWithLostPods: a run whose pods were lost while they waited starts its own.
func TestPoolWithLostPods(t *testing.T) {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	for name, lose := range map[string]func(l *lab, job string) error{
		"deleted": func(l *lab, job string) error {
			return l.k.CoreV1().Pods(l.namespace).DeleteCollection(t.Context(), now, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
		},
		"deleted with time": func(l *lab, job string) error {
			return l.k.CoreV1().Pods(l.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
		},
		"deleted with its Job": func(l *lab, job string) error { return l.k.BatchV1().Jobs(l.namespace).Delete(t.Context(), job, now) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			r := l.runner(sandbox.WithPool(sandbox.Pool{Size: 1}))
			req := files(t, "content")
			require.NoError(t, r.Warm(t.Context(), req, 1))
			jobs := l.jobs()
			require.Len(t, jobs, 1)
			require.NoError(t, lose(l, jobs[0]))
			res, err := r.Run(t.Context(), req, sandbox.IO{Stdin: strings.NewReader("line\n")})
			require.NoError(t, err)
			require.Equal(t, result.StatusExited, res.Status, res.Explanation)
			require.Zero(t, res.ExitCode, res.Stderr)
			require.Equal(t, &result.Pool{Reason: "no container of its class was waiting"}, res.Pool)
			require.NotContains(t, l.jobs(), jobs[0])
		})
	}
}
