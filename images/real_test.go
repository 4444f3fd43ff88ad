package images_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/build"
	"github.com/evalbox/evalbox/images/pull"
)

func shipped(t *testing.T) images.Catalog {
	t.Helper()
	cat, err := images.LoadCatalog(configs.Images(), "configs/images.yaml")
	require.NoError(t, err)
	return cat
}

func TestShippedCatalogPinsItsFiles(t *testing.T) {
	cat := shipped(t)
	assert.Equal(t, []string{"cuda", "debian", "python"}, cat.Names())
	assert.Equal(t, "debian", cat.Default)
	for _, name := range cat.Names() {
		e, _ := cat.Lookup(name)
		assert.Equal(t, sum(evalbox.DockerfileRunner), e.DockerfileSHA256,
			"image %s: Dockerfile.runner has changed: run hack/pin-recipe.sh", name)
		if name == "debian" {
			assert.Empty(t, e.Requirements, "its packages are Debian's")
			continue
		}
		assert.Equal(t, sum(evalbox.Requirements), e.RequirementsSHA256,
			"image %s: requirements.lock has changed: run hack/pin-recipe.sh", name)
	}
}

// engine returns a client of the engine of this machine. That there is one is
// what the tests of this repository stand on: without it they fail.
func engine(t *testing.T) *client.Client {
	t.Helper()
	eng, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { _ = eng.Close() })
	_, err = eng.Ping(t.Context())
	require.NoError(t, err, "no Docker engine answers; make test starts one")
	return eng
}

// python is a program that needs everything the image promises.
const python = `
import os, sys
import joblib, numpy, pandas, pytest, scipy, sklearn
from sklearn.datasets import load_breast_cancer, load_digits
assert load_digits().data.shape == (1797, 64)
assert load_breast_cancer().data.shape == (569, 30)
assert os.getuid() == os.getgid() == 64646
assert os.path.exists(pandas.__cached__), "Python code is not compiled"
for name in "python", "python3":
    assert any(os.access(d + "/" + name, os.X_OK) for d in os.get_exec_path()), name
for name in "gcc", "cc":
    assert not any(os.access(d + "/" + name, os.X_OK) for d in os.get_exec_path()), name
assert os.environ["PYTHONUNBUFFERED"] == "1" and os.environ["PYTHONHASHSEED"] == "0"
assert os.getcwd() == "/work" and os.path.isdir("input") and os.path.isdir("final")
try:
    open("/work/x", "w")
    sys.exit("the root file system is writable")
except OSError:
    pass
print("fine")
`

func TestEngineDebianImageRunsPython(t *testing.T) {
	t.Parallel()
	eng, cat := engine(t), shipped(t)
	var progress bytes.Buffer
	made, _, err := build.Ensure(t.Context(), eng, cat, "debian", build.Options{
		Dockerfile: evalbox.DockerfileRunner, Pull: pull.Options{Progress: &progress},
	})
	require.NoError(t, err, "%s", &progress)
	require.Equal(t, "linux/"+runtime.GOARCH, made.Platform)

	again, changed, err := build.Ensure(t.Context(), eng, cat, "", build.Options{Dockerfile: evalbox.DockerfileRunner})
	require.NoError(t, err)
	assert.False(t, changed)
	assert.Equal(t, made, again)

	out, code := run(t, eng, made.ID, "python3", "-c", python)
	assert.Zero(t, code, "%s", out)
	assert.Contains(t, out, "fine")
}

// run runs a command without a network on a read-only root file system.
func run(t *testing.T, eng *client.Client, imageID string, cmd ...string) (output string, code int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := eng.ContainerCreate(ctx,
		&container.Config{Image: imageID, Cmd: cmd, Labels: map[string]string{"org.evalbox.test": t.Name()}},
		&container.HostConfig{
			NetworkMode: "none", ReadonlyRootfs: true, CapDrop: []string{"ALL"},
			Tmpfs: map[string]string{"/tmp": "exec"},
		}, nil, nil, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, eng.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true}))
	})
	ended, failed := eng.ContainerWait(ctx, c.ID, container.WaitConditionNextExit)
	require.NoError(t, eng.ContainerStart(ctx, c.ID, container.StartOptions{}))
	select {
	case end := <-ended:
		code = end.StatusCode
	case err := <-failed:
		require.NoError(t, err)
	}
	logs, err := eng.ContainerLogs(ctx, c.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	require.NoError(t, err)
	defer logs.Close()
	var both bytes.Buffer
	_, err = stdcopy.StdCopy(&both, &both, logs)
	require.NoError(t, err)
	return both.String(), code
}

// A stopped bootstrap leaves neither processes nor files.
func TestMmdebstrapCanceled(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		err := build.Mmdebstrap(t.Context(), images.Bootstrap{}, nil, func(string) {})
		require.ErrorContains(t, err, "a root file system")
		return
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for dir := tmp; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755) // apt downloads as its own user
	}
	debian, _ := shipped(t).Lookup("debian")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := build.Mmdebstrap(ctx, *debian.Base.Bootstrap, &bytes.Buffer{}, func(line string) {
		if line == "running apt-get update..." {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}
