package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/cmd/sandbox/cli"
)

// An image whose base cannot be pulled: the step, the reason, and what to try.
func TestEngineImageEnsureWithoutItsRegistry(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("XDG_CACHE_HOME", dir)
	pin := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	const digest = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
	catalog := filepath.Join(dir, "catalog.yaml")
	require.NoError(t, os.WriteFile(catalog, []byte(`
schema: evalbox/images/v1
default: far
images:
  far:
    description: on a registry that is not there
    base: {reference: "127.0.0.1:1/team/far:1@`+digest+`"}
    dockerfile: Dockerfile.runner
    dockerfile_sha256: `+pin(evalbox.DockerfileRunner)+`
    requirements: requirements.lock
    requirements_sha256: `+pin(evalbox.Requirements)+`
`), 0o600))
	for _, command := range []string{"ensure", "build"} {
		out, errs := runHere(t, cli.ExitSandbox, "image", command, "--catalog", catalog)
		assert.Empty(t, out)
		assert.Contains(t, errs, "sandbox: image far: pull: image 127.0.0.1:1/team/far:1@"+digest+" cannot be pulled: the registry cannot be reached: ")
		assert.Contains(t, errs, "sandbox: hint: the engine, not this command, connects to 127.0.0.1:1")
	}
}

// A silent stdin does not keep an import from being interrupted.
func TestImageImportOfASilentStdinIsInterrupted(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	silent, end := io.Pipe()
	defer end.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	var out, errs bytes.Buffer
	in := readerFunc(func(p []byte) (int, error) {
		cancel(cli.SignalError{Signal: os.Interrupt})
		return silent.Read(p)
	})
	code := Run(ctx, []string{"image", "import", "-"}, cli.Streams{In: in, Out: &out, Err: &errs})
	assert.Equal(t, cli.ExitInterrupted, code)
	assert.Equal(t, "sandbox: interrupted (Ctrl-C)\n", errs.String())
}

// Nobody types an archive.
func TestImageImportRefusesATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer terminal.Close()
	var out, errs bytes.Buffer
	code := Run(t.Context(), []string{"image", "import", "-"}, cli.Streams{In: terminal, Out: &out, Err: &errs})
	assert.Equal(t, cli.ExitUsage, code)
	assert.Contains(t, errs.String(), "sandbox: image import: stdin is a terminal")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
