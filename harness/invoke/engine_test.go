//go:build linux

package invoke_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// These tests run the test tool on the real engine with the debian image. Without either
// they fail and say what to do: `make test` makes both.

// invocation has a configuration with these flags and an empty output directory.
func invocation(t *testing.T, flags ...string) invoke.Invocation {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	config := map[string]bool{}
	for _, flag := range flags {
		config[flag] = true
	}
	text, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "out"), 0o755))
	return invoke.Invocation{Config: filepath.Join(dir, "config.json"), OutputDir: filepath.Join(dir, "out")}
}

func newTool(t *testing.T, box sandbox.Box, o invoke.Options) *invoke.Harness {
	t.Helper()
	o.Executable, o.Root = "python3 fake_tool.py", "testdata"
	o.Request.Limits.Memory, o.Request.Limits.CPUs = 512*policy.MiB, 1
	h, err := invoke.New(box, o)
	require.NoError(t, err)
	return h
}

// TestEngineSuccess: the arguments of the tool, its rights, and its artifacts.
func TestEngineSuccess(t *testing.T) {
	t.Parallel()
	inv := invocation(t, "metadata", "plot", "escape", "stdin")
	seed, adapter := invoke.NewSeed(7), "x"
	inv.Seed, inv.Adapter = &seed, &adapter
	// Only that the mount is read-only keeps the tool from writing there.
	require.NoError(t, os.Chmod(inv.Config, 0o666))
	config, tool := hashes(t, filepath.Dir(inv.Config)), hashes(t, "testdata")
	res, err := newTool(t, runnertest.New(t), invoke.Options{}).Run(t.Context(), inv)
	require.NoError(t, err)
	left := hashes(t, inv.OutputDir)
	require.Equal(t, "stdin ''\nrefused OSError\nrefused OSError\nfake tool: completed\n"+
		"config /work/config/config.json\noutput /work/output\nadapter x\nseed 7\n", res.Stdout)
	require.Empty(t, res.Stderr)
	require.Empty(t, res.Unenforced)
	require.NoFileExists(t, "testdata/escaped")
	require.Equal(t, tool, hashes(t, "testdata"))
	require.Equal(t, config["config.json"], hashes(t, filepath.Dir(inv.Config))["config.json"])
	report := res.Verification
	require.NoError(t, res.Err())
	require.True(t, report.OK, report.Problems)
	require.Len(t, report.Artifacts, 4)
	_, err = invoke.Verify(t.Context(), inv.OutputDir, invoke.VerifyOptions{})
	require.NoError(t, err)
	require.Equal(t, left, hashes(t, inv.OutputDir), "looking at the files changes none")
	require.Equal(t, `"fake-run-seed-7"`, string(report.Manifest["run_id"]))

	// The same again, elsewhere: the same artifacts and the same result.
	again := invocation(t, "metadata", "plot", "escape", "stdin")
	again.Seed, again.Adapter = &seed, &adapter
	second, err := newTool(t, runnertest.New(t), invoke.Options{}).Run(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, report, second.Verification)
	require.Equal(t, lasting(t, res, inv), lasting(t, second, again))
}

// lasting are the fields of a result that are not volatile, less the paths of the call.
func lasting(t *testing.T, res invoke.Result, inv invoke.Invocation) string {
	t.Helper()
	text, err := json.Marshal(res)
	require.NoError(t, err)
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &fields))
	for _, name := range invoke.VolatileFields() {
		require.Contains(t, fields, name)
		delete(fields, name)
	}
	text, err = json.Marshal(fields)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), filepath.Dir(inv.Config), "DIR")
}

// hashes are the files in a directory, each with its mode, time and hash.
func hashes(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		hash, err := invoke.HashArtifact(t.Context(), filepath.Join(dir, name))
		all[name] = fmt.Sprintln(info.Mode(), info.ModTime().UnixNano(), hash)
		return err
	}))
	return all
}

// TestEngineStale: a file from before is not of the run, also if the tool writes it again.
func TestEngineStale(t *testing.T) {
	t.Parallel()
	s := runnertest.New(t)
	inv := invocation(t, "list_kept", "rewrite_kept")
	require.NoError(t, os.WriteFile(filepath.Join(inv.OutputDir, "kept.txt"), []byte("kept"), 0o666))
	res, err := newTool(t, s, invoke.Options{}).Run(t.Context(), inv)
	require.NoError(t, err)
	require.EqualError(t, res.Err(), "kept.txt: was not written by this run")

	// More files than the limit are not a success, and are listed.
	few := sandbox.Request{Limits: policy.Limits{OutputFiles: 20}}
	res, err = newTool(t, s, invoke.Options{Request: few}).Run(t.Context(), invocation(t, "many_files"))
	require.NoError(t, err)
	require.Equal(t, invoke.ReasonLimit, res.Reason)
	require.ErrorContains(t, res.Err(), "more than 20 entries")
	require.NotEmpty(t, res.NotWritten)
}

// TestEngineFailures: every way in which the tool can misbehave.
func TestEngineFailures(t *testing.T) {
	t.Parallel()
	s := runnertest.New(t)
	for flag, want := range map[string]struct {
		reason invoke.Reason
		text   string
	}{
		"fail":               {invoke.ReasonNonzeroExit, "exited with code 1"},
		"signal":             {invoke.ReasonNonzeroExit, "ended by signal 9"},
		"no_manifest":        {invoke.ReasonMissingArtifact, "manifest.json"},
		"no_trace":           {invoke.ReasonMissingArtifact, "trace_pack.jsonl"},
		"fifo_manifest":      {invoke.ReasonMissingArtifact, "manifest.json (is a fifo"},
		"socket_manifest":    {invoke.ReasonMissingArtifact, "manifest.json (is a socket"},
		"link_manifest":      {invoke.ReasonMissingArtifact, "manifest.json (is a symlink"},
		"directory_manifest": {invoke.ReasonMissingArtifact, "manifest.json (is a directory)"},
	} {
		res, err := newTool(t, s, invoke.Options{}).Run(t.Context(), invocation(t, flag))
		require.NoError(t, err, flag)
		var failed *invoke.InvocationError
		require.ErrorAs(t, res.Err(), &failed, flag)
		require.Equal(t, want.reason, failed.Reason, flag)
		require.ErrorContains(t, failed, want.text, flag)
		if flag == "fail" {
			require.Equal(t, "fake tool: simulated failure\n", failed.Stderr)
			require.Equal(t, 1, *failed.ExitCode)
		}
	}
	for flag, want := range map[string]invoke.Kind{
		"bad_json": invoke.KindInvalidJSON, "manifest_not_utf8": invoke.KindInvalidJSON, "missing_field": invoke.KindMissingFields,
		"bad_trace": invoke.KindInvalidJSON, "trace_not_utf8": invoke.KindInvalidJSON, "bad_step": invoke.KindMissingStep,
		"bad_metadata": invoke.KindNotObject, "wrong_hash": invoke.KindHashMismatch, "list_missing": invoke.KindMissing,
		"list_outside": invoke.KindOutside,
	} {
		res, err := newTool(t, s, invoke.Options{}).Run(t.Context(), invocation(t, flag))
		require.NoError(t, err, flag)
		var problem *invoke.ArtifactError
		require.ErrorAs(t, res.Err(), &problem, flag)
		require.Equal(t, want, problem.Kind, flag)
	}
}

// TestEngineTimeLimit: a tool that is too slow, with a child that shrugs SIGTERM off.
func TestEngineTimeLimit(t *testing.T) {
	t.Parallel()
	res, err := newTool(t, runnertest.New(t), invoke.Options{Timeout: 15 * time.Second}).Run(t.Context(), invocation(t, "survivor", "timeout"))
	require.NoError(t, err)
	var late *invoke.TimeoutError
	require.ErrorAs(t, res.Err(), &late)
	require.EqualError(t, late, "the tool timed out after 15 seconds")
	require.Nil(t, late.ExitCode)
	require.True(t, strings.HasPrefix(late.Stdout, "partial\n") || strings.HasSuffix(late.Stdout, "partial\n"), late.Stdout)
	require.Equal(t, "warning\n", late.Stderr)
}

// TestEngineOutput: 300 MB are cut, and bytes that are no text are replaced.
func TestEngineOutput(t *testing.T) {
	t.Parallel()
	res, err := newTool(t, runnertest.New(t), invoke.Options{}).Run(t.Context(), invocation(t, "flood", "not_utf8"))
	require.NoError(t, err)
	require.True(t, res.StdoutTruncated)
	require.Greater(t, res.StdoutBytes, int64(300<<20))
	require.Less(t, len(res.Stdout), 2<<20)
	require.Contains(t, res.Stdout, "a\ufffd\r\n")
}

// TestEngineRefuses: a file from before is not an artifact of the run, and a tool that does
// not exist is not started.
func TestEngineRefuses(t *testing.T) {
	t.Parallel()
	s := runnertest.New(t)
	inv := invocation(t, "list_kept")
	require.NoError(t, os.WriteFile(filepath.Join(inv.OutputDir, "kept.txt"), []byte("kept"), 0o644))
	res, err := newTool(t, s, invoke.Options{}).Run(t.Context(), inv)
	require.NoError(t, err)
	require.Len(t, res.Verification.Problems, 1)
	require.Equal(t, invoke.KindStale, res.Verification.Problems[0].Kind)
	res, err = newTool(t, s, invoke.Options{}).Run(t.Context(), inv)
	require.NoError(t, err)
	require.ErrorContains(t, res.Err(), "holds manifest.json from before")

	missing, err := invoke.New(s, invoke.Options{Executable: "/no/such/tool"})
	require.NoError(t, err)
	res, err = missing.Run(t.Context(), invocation(t))
	require.NoError(t, err)
	var failed *invoke.InvocationError
	require.ErrorAs(t, res.Err(), &failed)
	require.Equal(t, invoke.ReasonNotFound, failed.Reason)
	require.Nil(t, failed.ExitCode)
	require.NotEmpty(t, failed.Stderr)

	// The configuration is for the tool to look for.
	inv = invocation(t)
	inv.Config += ".none"
	_, err = newTool(t, s, invoke.Options{}).Run(t.Context(), inv)
	require.NoError(t, err)
}
