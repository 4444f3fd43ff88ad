package build

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/imagestest"
	"github.com/evalbox/evalbox/images/pull"
)

// testRequirements is what the catalogs in testdata pin.
const testRequirements = "r"

const pipBase = "registry.example:5000/team/python@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"

// pipOptions are options for an image on a base of a registry.
func pipOptions(t *testing.T) Options {
	t.Helper()
	opts := options(t, new(atomic.Int32))
	opts.Requirements = testRequirements
	opts.Pull.Credentials = func(string) (registry.AuthConfig, error) { return registry.AuthConfig{}, nil }
	return opts
}

func TestEnsureOnABaseOfARegistry(t *testing.T) {
	cat, eng, opts := imagestest.Catalog(t), imagestest.New(t), pipOptions(t)
	pip, _ := cat.Lookup("pip")
	opts.PipIndex = "https://pypi.example/simple"
	var progress bytes.Buffer
	opts.Pull.Progress = &progress
	r, changed, err := Ensure(t.Context(), eng, cat, "pip", opts)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, "sha256:new", r.ID)
	assert.Equal(t, pipBase, eng.Pulled.Ref)
	for _, want := range []string{"pull: registry.example:5000/team/python@", "Pulling from tools", "build: " + pip.Tag(), "done: "} {
		assert.Contains(t, progress.String(), want)
	}

	assert.Equal(t, "default", eng.Built.NetworkMode)
	assert.True(t, eng.Built.NoCache)
	args := map[string]string{}
	for name, value := range eng.Built.BuildArgs {
		args[name] = *value
	}
	assert.Equal(t, map[string]string{
		"BASE_IMAGE": pipBase, "BASE_NAME": pipBase, "NAME": "pip", "RECIPE": pip.Recipe(), "VERSION": pip.Recipe()[:12],
		"CREATED": "2026-01-02T00:00:00Z", "SOURCE_DATE_EPOCH": "1767312000", "PIP_INDEX": "https://pypi.example/simple",
	}, args)
	assert.Equal(t, map[string]string{"Dockerfile.runner": testDockerfile, "requirements.lock": testRequirements}, contextOf(t, eng))
	names, calls := eng.State()
	assert.Contains(t, names, pipBase, "the base stays")
	assert.Zero(t, calls["import"])

	// The base is there now.
	progress.Reset()
	opts.Force, opts.Network = true, "host"
	_, _, err = Ensure(t.Context(), eng, cat, "pip", opts)
	require.NoError(t, err)
	assert.Contains(t, progress.String(), "pull: the engine has "+pipBase)
	assert.Equal(t, "host", eng.Built.NetworkMode)
	names, _ = eng.State()
	assert.Contains(t, names, pip.Tag(), "the image that is the same as before is not removed")
}

func TestEnsureWithoutRequirementsHasNoNetwork(t *testing.T) {
	eng, opts := imagestest.New(t), pipOptions(t)
	opts.Network, opts.PipIndex = "host", "https://pypi.example/simple"
	_, _, err := Ensure(t.Context(), eng, imagestest.Catalog(t), "big-one", opts)
	require.NoError(t, err)
	assert.Equal(t, "none", eng.Built.NetworkMode)
	assert.NotContains(t, eng.Built.BuildArgs, "PIP_INDEX")
	assert.Equal(t, map[string]string{"Dockerfile.runner": testDockerfile, "requirements.lock": ""}, contextOf(t, eng))
}

func TestEnsureOnABaseOfARegistryFailureLeavesTheBase(t *testing.T) {
	cat := imagestest.Catalog(t)
	pip, _ := cat.Lookup("pip")
	eng, opts := imagestest.New(t), pipOptions(t)
	eng.FailLate["build"] = errors.New("boom")
	// What another image of the base, and a killed build of this one, have left.
	ours := map[string]string{images.LabelRecipe: pip.Recipe()}
	eng.Put("", "sha256:theirs", imagestest.Image{Parent: "sha256:pulled"})
	eng.Put("", "sha256:killed", imagestest.Image{Parent: "sha256:pulled", Labels: ours})
	eng.Put("", "sha256:below", imagestest.Image{Labels: ours})
	eng.Put("mine:1", "sha256:named", imagestest.Image{Parent: "sha256:below", Labels: ours})
	byDigest := "mine@sha256:" + strings.Repeat("0", 64)
	eng.Put("", "sha256:digest", imagestest.Image{Labels: ours, Digests: []string{byDigest}})
	eng.StepLabels = ours
	_, _, err := Ensure(t.Context(), eng, cat, "pip", opts)
	require.ErrorContains(t, err, "image pip: build: ")
	names, _ := eng.State()
	assert.Equal(t, []string{"mine:1", byDigest, pipBase, "sha256:below", "sha256:theirs"}, names)
}

// A base that does not run as root is refused before anything is built on it.
func TestEnsureRefusesABaseWithAUser(t *testing.T) {
	for user, refused := range map[string]bool{"": false, "0:0": false, "root": false, "1000": true, "nobody:0": true} {
		eng, opts := imagestest.New(t), pipOptions(t)
		eng.User = user
		_, _, err := Ensure(t.Context(), eng, imagestest.Catalog(t), "pip", opts)
		if !refused {
			assert.NoError(t, err, user)
			continue
		}
		require.ErrorContains(t, err, fmt.Sprintf("runs as user %q, must be root", user))
		assert.Contains(t, imagestest.HintOf(t, err), "choose a base whose user is root")
		_, calls := eng.State()
		assert.Zero(t, calls["build"])
	}
}

func TestEnsurePullFails(t *testing.T) {
	eng, opts := imagestest.New(t), pipOptions(t)
	eng.Fail["pull"] = errors.New("dial tcp: connection refused")
	_, _, err := Ensure(t.Context(), eng, imagestest.Catalog(t), "pip", opts)
	var refused *pull.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, pull.RegistryUnavailable, refused.Kind)
	require.ErrorContains(t, err, "image pip: pull: ")
	assert.NotEmpty(t, imagestest.HintOf(t, err))
	names, _ := eng.State()
	assert.Empty(t, names)
}

func TestEnsureRefusesAPipIndex(t *testing.T) {
	for _, index := range []string{"https://user:hunter2@pypi.example/simple", "https://hunter2@pypi.example", "pypi.example", "file:///hunter2", "http://%hunter2"} {
		eng, opts := imagestest.New(t), pipOptions(t)
		opts.PipIndex = index
		_, _, err := Ensure(t.Context(), eng, imagestest.Catalog(t), "pip", opts)
		require.ErrorContains(t, err, "package index", index)
		assert.NotContains(t, err.Error(), "hunter2")
		_, calls := eng.State()
		assert.Zero(t, calls["pull"])
	}
}

func TestBuildFailed(t *testing.T) {
	entry := images.Entry{Dockerfile: "Dockerfile.runner", Requirements: "requirements.lock"}
	plainErr := errors.New("connection lost")
	assert.Equal(t, plainErr, buildFailed(entry, plainErr, tailOf("log")))
	said := &jsonmessage.JSONError{Code: 1, Message: "The command '/bin/sh -c " + strings.Repeat("x", 1000) + "' returned a non-zero code: 1"}
	for log, hint := range map[string]string{
		"ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.":        "serves another file",
		"ERROR: No matching distribution found for numpy==2.2.6":                           "--build-network",
		"WARNING: Retrying after NewConnectionError: Failed to establish a new connection": "--pip-index",
		"/usr/bin/python3: No module named pip":                                            "has no pip",
		"sh: python3: not found":                                                           "",
	} {
		failed := buildFailed(entry, said, tailOf(log))
		reason := strings.TrimPrefix(log, "ERROR: ")
		require.EqualError(t, failed, reason+" (a command of Dockerfile.runner ended with code 1)\n  "+log)
		if hint != "" {
			assert.Contains(t, imagestest.HintOf(t, failed), hint)
		}
	}
}

// tailOf is the tail of an output.
func tailOf(lines ...string) *logTail {
	tail := &logTail{progress: func(string) {}}
	_, _ = tail.Write([]byte(strings.Join(lines, "\n") + "\n")) // never fails
	return tail
}

// The line that names the reason comes first, although many others follow it.
func TestReasonComesFirst(t *testing.T) {
	lines := []string{"I: installing packages...", "E: Unable to locate package nosuch"}
	for range 2 * tailLines {
		lines = append(lines, "W: something else")
	}
	lines = append(lines, "E: apt-get failed: process exited with 100 and error in console output", "E: mmdebstrap failed to run")
	failed := tailOf(lines...).failed("mmdebstrap: exit status 25")
	first, rest, _ := strings.Cut(failed.Error(), "\n")
	assert.Equal(t, "Unable to locate package nosuch (mmdebstrap: exit status 25)", first)
	assert.Equal(t, tailLines, strings.Count(rest, "\n")+1)
	assert.Contains(t, imagestest.HintOf(t, bootstrapFailed(failed, failed.Error())), "apt-cache policy")
	assert.EqualError(t, tailOf().failed("mmdebstrap: signal: killed"), "mmdebstrap: signal: killed")
}

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	n, err := plain{&out}.Write([]byte("a\x1b[2J\r\tb\u009b\nc"))
	require.NoError(t, err)
	assert.Equal(t, len("a\x1b[2J\r\tb\u009b\nc"), n)
	assert.Equal(t, "a\tb\nc", out.String())
}

// contextOf unpacks the last build context: names and texts.
func contextOf(t *testing.T, eng *imagestest.Engine) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(eng.BuildContext)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		files[h.Name] = string(text)
		assert.False(t, h.ModTime.IsZero())
	}
}
