//go:build linux && cluster

package kubernetes_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// BenchmarkStart compares one short program: through the engine, in a container that waits, as a whole run
// with files without and with a pool, as a bare Job with an init container, and with kubectl run. Only the ratios mean something.
func BenchmarkStart(b *testing.B) {
	image, program := os.Getenv("EVALBOX_KUBERNETES_IMAGE"), []string{"python3", "-c", "pass"}
	programs := os.Getenv("EVALBOX_KUBERNETES_PROGRAMS")
	require.NotEmpty(b, programs, "this needs a cluster: hack/engine run kubernetes")
	e, err := kubernetes.Connect(engine.Cluster{Programs: programs, CPUShare: 0.05})
	require.NoError(b, err)
	defer e.Close()
	resolved, err := e.Resolve(b.Context(), image)
	require.NoError(b, err)
	class := spec.Class{Image: spec.Image{ID: resolved.ID, Digest: resolved.Digest}, User: spec.DedicatedUser, WorkDir: "/tmp", Network: "none",
		Cgroup: spec.Cgroup{MemoryBytes: 256 << 20, NanoCPUs: 1e9}, Tmpfs: []spec.Tmpfs{{Target: "/tmp", SizeBytes: 1 << 20}}}
	number := 0
	prepare := func() engine.Container {
		number++
		id := "bench-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(number)
		c, err := e.Prepare(b.Context(), class, engine.Meta{Name: "evalbox-" + id, Labels: map[string]string{spec.LabelManaged: "true", spec.LabelRun: id}})
		require.NoError(b, err)
		return c
	}
	finish := func(c engine.Container) {
		require.NoError(b, c.Start(b.Context(), spec.Job{Command: program, TimeoutSeconds: 60}, engine.Streams{Stdout: io.Discard, Stderr: io.Discard}))
		end, err := c.Wait(b.Context())
		require.NoError(b, err)
		require.True(b, end.Reported && end.ExitCode == 0)
	}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			c := prepare()
			finish(c)
			b.StopTimer()
			require.NoError(b, c.Remove(b.Context()))
			b.StartTimer()
		}
	})
	b.Run("warm", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			c := prepare()
			b.StartTimer()
			finish(c)
			b.StopTimer()
			require.NoError(b, c.Remove(b.Context()))
			b.StartTimer()
		}
	})
	// A whole run, with a script and an input of 1 MB.
	whole := func(b *testing.B, size int) {
		e, err := kubernetes.Connect(engine.Cluster{Programs: programs, CPUShare: 0.05})
		require.NoError(b, err)
		r, err := sandbox.New(sandbox.WithEngine(e), sandbox.WithStateDir(b.TempDir()), sandbox.WithPool(sandbox.Pool{Size: size}))
		require.NoError(b, err)
		defer func() { require.NoError(b, r.Close()) }()
		dir := b.TempDir()
		req := sandbox.Request{Image: image, Script: filepath.Join(dir, "pass.py"), Input: filepath.Join(dir, "input"),
			Limits: policy.Limits{CPUs: 1, Memory: 256 * policy.MiB, Timeout: time.Minute}}
		require.NoError(b, os.Mkdir(req.Input, 0o755))
		require.NoError(b, os.WriteFile(filepath.Join(req.Input, "data"), make([]byte, 1e6), 0o644))
		require.NoError(b, os.WriteFile(req.Script, []byte("pass"), 0o644))
		for b.Loop() {
			b.StopTimer()
			if size > 0 {
				require.NoError(b, r.Warm(b.Context(), req, size))
			}
			b.StartTimer()
			res, err := r.Run(b.Context(), req)
			require.NoError(b, err)
			require.Equal(b, size > 0, res.Pool != nil && res.Pool.Waited)
		}
	}
	b.Run("run-cold", func(b *testing.B) { whole(b, 0) })
	b.Run("run-warm", func(b *testing.B) { whole(b, 1) })
	b.Run("bare-job", func(b *testing.B) {
		client, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
		require.NoError(b, err)
		batch, err := batchclient.NewForConfig(client)
		require.NoError(b, err)
		jobs := batch.Jobs("default")
		for b.Loop() {
			container := corev1.Container{Name: "main", Image: image, Command: program}
			first := container
			first.Name, first.Command = "first", []string{"true"}
			job, err := jobs.Create(b.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{GenerateName: "bare-"}, Spec: batchv1.JobSpec{
				BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
					InitContainers: []corev1.Container{first}, Containers: []corev1.Container{container}}}}}, metav1.CreateOptions{})
			require.NoError(b, err)
			watch, err := jobs.Watch(b.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + job.Name, ResourceVersion: job.ResourceVersion})
			require.NoError(b, err)
			for event := range watch.ResultChan() {
				if now, ok := event.Object.(*batchv1.Job); ok && now.Status.Succeeded+now.Status.Failed > 0 {
					break
				}
			}
			watch.Stop()
			b.StopTimer()
			require.NoError(b, jobs.Delete(b.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
			b.StartTimer()
		}
	})
	b.Run("kubectl-run", func(b *testing.B) {
		for b.Loop() {
			number++
			// A program that ends at once is sometimes missed.
			cmd := exec.CommandContext(b.Context(), "kubectl", "run", "bench-"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(number), "--rm", "-i", "--quiet", "--restart=Never",
				"--image="+image, "--command", "--", program[0], program[1], program[2])
			cmd.Stdin = strings.NewReader("")
			require.NoError(b, cmd.Run())
		}
	})
}
