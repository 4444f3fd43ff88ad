//go:build linux

package sandbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// shellImage is the root file system of a small image: a shell and what the watcher
// needs, taken from this machine.
func shellImage(t *testing.T) io.Reader {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"sh", "cat", "df", "du", "find", "head", "tail", "wc", "ln", "id"} {
		found, err := exec.LookPath(name)
		require.NoError(t, err)
		real, err := filepath.EvalSymlinks(found)
		require.NoError(t, err)
		files["bin/"+name] = real
		libraries, err := exec.Command("ldd", real).CombinedOutput()
		require.NoError(t, err, string(libraries))
		for _, library := range regexp.MustCompile(`/\S+\.so\S*`).FindAllString(string(libraries), -1) {
			files[strings.TrimPrefix(library, "/")] = library
		}
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	made := map[string]bool{".": true}
	for name, from := range files {
		var parents []string
		for dir := filepath.Dir(name); !made[dir]; dir = filepath.Dir(dir) {
			made[dir] = true
			parents = append(parents, dir)
		}
		slices.Reverse(parents)
		for _, dir := range parents {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}))
		}
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}))
		_, err = w.Write(text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &archive
}

// remoteEngine is a private engine behind TLS, which has the image "shell", and a
// client of it.
func remoteEngine(t *testing.T, hide string) (*privateEngine, func() *client.Client) {
	t.Helper()
	certs := newAuthority(t).folder(time.Hour)
	address := "tcp://127.0.0.1:" + freePort(t)
	e := newHidingEngine(t, hide, "-H", address, "--tlsverify", "--tlscacert", certs+"/ca.pem",
		"--tlscert", certs+"/cert.pem", "--tlskey", certs+"/key.pem")
	connect := func() *client.Client {
		api, err := client.NewClientWithOpts(client.WithHost(address), client.WithAPIVersionNegotiation(),
			client.WithTLSClientConfig(certs+"/ca.pem", certs+"/cert.pem", certs+"/key.pem"))
		require.NoError(t, err)
		return api
	}
	api := connect()
	defer api.Close()
	answer, err := api.ImageImport(t.Context(), image.ImportSource{Source: shellImage(t), SourceName: "-"}, "shell", image.ImportOptions{})
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, answer)
	require.NoError(t, err)
	require.NoError(t, answer.Close())
	return e, connect
}

// shellRequest is a program of the image "shell".
func shellRequest(t *testing.T, program string) sandbox.Request {
	t.Helper()
	input := t.TempDir()
	require.NoError(t, os.Chmod(input, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(input, "data"), []byte("data from here"), 0o644))
	return sandbox.Request{Image: "shell", Command: []string{"sh", "-c", program}, Input: input,
		Final:  filepath.Join(t.TempDir(), "final"),
		Limits: policy.Limits{Timeout: time.Minute, Memory: 64 * policy.MiB, CPUs: 1}}
}

func remoteRunner(t *testing.T, api *client.Client, state string) *sandbox.Runner {
	t.Helper()
	r, err := sandbox.New(sandbox.WithEngine(docker.New(api)), sandbox.WithStateDir(state))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

const shellProgram = "cat input/data; cat input/data >final/copy; ln -s /etc/passwd final/link; echo; echo Final Validation Performance: 0.5"

// TestEngineFilesOfAnEngineBehindTLS: an engine at the end of a connection may still be on this
// machine and have our directories; then they can be mounted, for who asks for that.
func TestEngineFilesOfAnEngineBehindTLS(t *testing.T) {
	t.Parallel()
	_, connect := remoteEngine(t, "")
	r := remoteRunner(t, connect(), filepath.Join(t.TempDir(), "state"))
	info, err := r.Info(t.Context())
	require.NoError(t, err)
	require.False(t, info.Local, "an address says nothing about the machine")
	for way, want := range map[string]string{spec.TransferAuto: spec.TransferCopy, spec.TransferBind: spec.TransferBind, spec.TransferCopy: spec.TransferCopy} {
		req := shellRequest(t, shellProgram)
		req.Transfer = way
		requireShellResult(t, run(t, r, req), req.Final, want)
	}
	api := connect()
	defer api.Close()
	requireNothingLeft(t, api, spec.LabelManaged+"=true")
}

func requireShellResult(t *testing.T, res *result.Result, final, way string) {
	t.Helper()
	require.Equal(t, 0, res.ExitCode, res.Stderr)
	require.Equal(t, 0.5, *res.Score)
	require.True(t, strings.HasPrefix(res.Stdout, "data from here\n"))
	require.Equal(t, way, res.Enforced.Transfer)
	require.Len(t, res.Outputs, 1)
	require.Equal(t, "copy", res.Outputs[0].Path)
	require.Equal(t, []result.SkippedOutput{{Path: "link", Kind: "symlink", Reason: "not a regular file"}}, res.OutputsSkipped)
	text, err := os.ReadFile(filepath.Join(final, "copy"))
	require.NoError(t, err)
	require.Equal(t, "data from here", string(text))
}

// TestEngineThatDoesNotSeeOurFolders gives the daemon a file system of its own: its
// socket and its process are here, and our directories are not.
func TestEngineThatDoesNotSeeOurFolders(t *testing.T) {
	t.Parallel()
	hidden := t.TempDir()
	e, connect := remoteEngine(t, hidden)
	local, err := e.api()
	require.NoError(t, err)
	for name, api := range map[string]*client.Client{"at its socket": local, "behind TLS": connect()} {
		r := remoteRunner(t, api, filepath.Join(hidden, name))
		req := shellRequest(t, shellProgram)
		req.Final = filepath.Join(hidden, name+" final")
		requireShellResult(t, run(t, r, req), req.Final, spec.TransferCopy)

		req.Transfer = spec.TransferBind
		_, err := r.Run(t.Context(), req)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "transfer", field.Field)
		records, err := r.Store().List()
		require.NoError(t, err)
		require.Len(t, records, 1, "what is refused leaves no record")
	}
	// Only the input is not seen: the other directories are, while the directory of the input
	// is another file system here, and the daemon has nothing in its place.
	disk := filepath.Join(hidden, "disk")
	require.NoError(t, os.Mkdir(disk, 0o755))
	require.NoError(t, syscall.Mount("none", disk, "tmpfs", 0, ""))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, 0)) })
	require.NoError(t, os.Mkdir(filepath.Join(disk, "input"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(disk, "input", "data"), []byte("data from here"), 0o644))
	local, err = e.api()
	require.NoError(t, err)
	r := remoteRunner(t, local, filepath.Join(t.TempDir(), "state"))
	req := shellRequest(t, shellProgram)
	req.Input = filepath.Join(disk, "input")
	requireShellResult(t, run(t, r, req), req.Final, spec.TransferCopy)
	api := connect()
	defer api.Close()
	requireNothingLeft(t, api, spec.LabelManaged+"=true")
}

// TestEngineLostWhileFilesAreAway kills the daemon under a run whose files are
// copied, and has it come back: the outputs are fetched all the same.
func TestEngineLostWhileFilesAreAway(t *testing.T) {
	t.Parallel()
	e := newPrivateEngine(t, "--live-restore")
	api, err := e.api()
	require.NoError(t, err)
	answer, err := api.ImageImport(t.Context(), image.ImportSource{Source: shellImage(t), SourceName: "-"}, "shell", image.ImportOptions{})
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, answer)
	require.NoError(t, err)
	require.NoError(t, answer.Close())
	r := remoteRunner(t, api, filepath.Join(e.dir, "state"))
	req := shellRequest(t, "echo before >final/before; echo ready; until test -e final/go; do find final >/dev/null; done; exit 7")
	req.ID, req.Transfer = "away", spec.TransferCopy
	ready, over := make(chan struct{}), make(chan struct{})
	streams := sandbox.IO{Stdout: afterLine("ready", func() { close(ready) })}
	finished := make(chan error, 1)
	go func() {
		finished <- func() error {
			select {
			case <-ready:
			case <-over:
				return errors.New("the program was never ready")
			}
			if err := e.started(req.ID); err != nil {
				return err
			}
			e.signal(syscall.SIGKILL)
			<-e.done
			if err := e.start(); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(e.dir, "data", "volumes", "evalbox-away", "_data", "out", "final", "go"), nil, 0o644)
		}()
	}()
	res, err := r.Run(t.Context(), req, streams)
	close(over)
	require.NoError(t, <-finished)
	require.NoError(t, err)
	require.Equal(t, 7, res.ExitCode, res.Explanation)
	var names []string
	for _, out := range res.Outputs {
		names = append(names, out.Path)
	}
	require.Equal(t, []string{"before", "go"}, names)
	require.NotContains(t, strings.Join(res.Warnings, "\n"), "outputs are incomplete")
	requireNothingLeft(t, api, spec.LabelManaged+"=true")
}

// TestEngineCopyRefusesAnImageWithoutAShell: nobody could watch the disk.
func TestEngineCopyRefusesAnImageWithoutAShell(t *testing.T) {
	t.Parallel()
	e := newPrivateEngine(t)
	r := e.runner(nil)
	_, err := r.Run(t.Context(), sandbox.Request{Image: "waiter", Command: []string{"/waiter"}, Transfer: spec.TransferCopy,
		Limits: policy.Limits{Memory: 64 * policy.MiB, CPUs: 1}})
	require.ErrorContains(t, err, "its image cannot watch the disk")
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	records, err := r.Store().List()
	require.NoError(t, err)
	require.Empty(t, records)
	api, err := e.api()
	require.NoError(t, err)
	defer api.Close()
	requireNothingLeft(t, api, spec.LabelManaged+"=true")
}

// runInJob runs a shell script in a container that has the engine's socket, as a CI
// job does: the command is /job/sandbox, and so are files and what is mounted.
func runInJob(t *testing.T, api *client.Client, script string, files map[string]string, mounts ...mount.Mount) (stdout, stderr string) {
	t.Helper()
	socket, ok := strings.CutPrefix(api.DaemonHost(), "unix://")
	require.True(t, ok, "the engine under test has no socket")
	binary := filepath.Join(t.TempDir(), "sandbox")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "../cmd/sandbox")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	spec, err := newRunner(t).Plan(t.Context(), python(t, "pass"))
	require.NoError(t, err)

	created, err := api.ContainerCreate(t.Context(), &container.Config{
		Image: spec.Class.Image.ID, User: "0:0", WorkingDir: "/job", Env: []string{"HOME=/root"},
		Entrypoint: []string{"sh", "-ec", script},
	}, &container.HostConfig{NetworkMode: "none", Mounts: append(mounts,
		mount.Mount{Type: mount.TypeBind, Source: socket, Target: "/var/run/docker.sock"},
	)}, nil, nil, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, api.ContainerRemove(context.Background(), created.ID, container.RemoveOptions{Force: true}))
	})
	var job bytes.Buffer
	w := tar.NewWriter(&job)
	program, err := os.ReadFile(binary)
	require.NoError(t, err)
	with := maps.Clone(files)
	with["job/sandbox"] = string(program)
	for name, text := range with {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, api.CopyToContainer(t.Context(), created.ID, "/", &job, container.CopyToContainerOptions{}))
	exits, errs := api.ContainerWait(t.Context(), created.ID, container.WaitConditionNextExit)
	require.NoError(t, api.ContainerStart(t.Context(), created.ID, container.StartOptions{}))
	var code int64
	select {
	case exit := <-exits:
		code = exit.StatusCode
	case err := <-errs:
		require.NoError(t, err)
	}
	logs, err := api.ContainerLogs(t.Context(), created.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	require.NoError(t, err)
	defer logs.Close()
	var printed, complained bytes.Buffer
	_, err = stdcopy.StdCopy(&printed, &complained, logs)
	require.NoError(t, err)
	require.Zero(t, code, complained.String())
	return printed.String(), complained.String()
}

const jobProgram = "text = open('input/data').read()\nopen('final/copy', 'w').write(text)\nprint('Final Validation Performance: 0.5')\n"

// TestEngineThroughAMountedSocket runs the command inside of a container that has
// the engine's socket: the socket is here, and the engine sees none of our directories.
func TestEngineThroughAMountedSocket(t *testing.T) {
	t.Parallel()
	api := testAPI(t)
	stdout, stderr := runInJob(t, api, `
/job/sandbox run --state-dir /job/state --input in --final out --json s.py
/job/sandbox run --state-dir /job/state -- true
cat out/copy >&2
/job/sandbox gc --state-dir /job/state >&2`,
		map[string]string{"job/in/data": "data from the job", "job/s.py": jobProgram})
	require.Contains(t, stderr, "data from the job")
	require.Contains(t, stderr, "sandbox: the engine does not see the directories of this machine: files were copied there and back")
	res, err := result.Decode([]byte(stdout))
	require.NoError(t, err)
	require.Equal(t, spec.TransferCopy, res.Enforced.Transfer)
	require.Equal(t, 0.5, *res.Score)
	require.Len(t, res.Outputs, 1)
	requireNothingLeft(t, api, spec.LabelRun+"="+res.ID)
	require.Positive(t, res.Resources.PeakMemoryBytes, "the container's own init looks, wherever we are")
}

// TestEngineFoldersThatMeanSomethingElseToTheEngine: a job has two directories of one disk of
// the host mounted, one under its own name and one under a name that the host gives
// to another directory. The engine sees the first; in place of the second it would
// mount the host's, and write to it. A job does not see the engine's process: unless it
// asks for mounts, its files are copied.
func TestEngineFoldersThatMeanSomethingElseToTheEngine(t *testing.T) {
	t.Parallel()
	api := testAPI(t)
	for name, test := range map[string]struct {
		flags string
		// work is the directory of the host that the job has as "work".
		work, want string
	}{
		"input and final are others":  {"--input work/in --final work/out", "jobs/work", spec.TransferCopy},
		"only the input is another":   {"--input work/in", "jobs/work", spec.TransferCopy},
		"all are shared":              {"--input work/in --final work/out --transfer bind", "work", spec.TransferBind},
		"input on a mount of its own": {"--input work/in --transfer bind", "work", spec.TransferBind},
		"shared, and nobody asks":     {"--input work/in --final work/out", "work", spec.TransferCopy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range []string{"state", "jobs/work/in", "jobs/work/out", "work/in", "work/out"} {
				require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "jobs/work/in/data"), []byte("the job's data"), 0o644))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "work/in/data"), []byte("the host's data"), 0o644))
			stdout, _ := runInJob(t, api, "cd "+dir+"; /job/sandbox run --state-dir state --json "+test.flags+" /job/s.py",
				map[string]string{"job/s.py": jobProgram},
				mount.Mount{Type: mount.TypeBind, Source: filepath.Join(dir, "state"), Target: filepath.Join(dir, "state")},
				mount.Mount{Type: mount.TypeBind, Source: filepath.Join(dir, test.work), Target: filepath.Join(dir, "work")})
			res, err := result.Decode([]byte(stdout))
			require.NoError(t, err)
			require.Equal(t, test.want, res.Enforced.Transfer)
			require.Len(t, res.Outputs, 1)
			want := "the job's data"
			if test.work == "work" {
				want = "the host's data"
			}
			require.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte(want))), res.Outputs[0].SHA256)
			if test.work != "work" {
				left, err := os.ReadDir(filepath.Join(dir, "work/out"))
				require.NoError(t, err)
				require.Empty(t, left, "the host's directory is left alone")
			}
		})
	}
}
