package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// The file that is shipped and the package that owns the limits agree.
func TestShippedSettings(t *testing.T) {
	s, err := sources{configFile: emptyFile(t)}.load()
	require.NoError(t, err)
	require.Equal(t, policy.Default(), s.Defaults)
	require.Zero(t, s.Limits)
	require.Zero(t, s.Max)
	require.False(t, s.AllowNetwork || s.AllowRoot || s.JSON || s.Quiet || s.Raw)
	require.Equal(t, "none", s.Network)
	require.Len(t, s.origins, len(keys))
	for _, o := range s.origins {
		require.Equal(t, shippedSource, o.Source, o.Key)
	}
	_, err = s.policy().Apply(s.Limits)
	require.NoError(t, err)
}

// Each layer has memory, and one key that no stronger layer has.
func TestPrecedence(t *testing.T) {
	user := t.TempDir()
	write(t, userFile(user), "memory: 1g\ncpus: 1\ngrace: 1s\nmax: {memory: 64g}\n")
	project := write(t, filepath.Join(t.TempDir(), "sandbox.yaml"), "memory: 2g\ncpus: 2.5\ntimeout: 90\n")
	from := sources{
		userDir: user, configFile: project,
		environ: []string{"SANDBOX_MEMORY=3g", "SANDBOX_TIMEOUT=2m", "SANDBOX_MAX_PIDS_LIMIT=5000", "OTHER=1"},
		flags:   map[string]value{"memory": {text: "4g", source: "--memory"}},
	}
	s, err := from.load()
	require.NoError(t, err)
	require.Equal(t, 4*policy.GiB, s.Limits.Memory)
	require.Equal(t, 2*time.Minute, s.Limits.Timeout)
	require.InDelta(t, 2.5, s.Limits.CPUs, 0)
	require.Equal(t, time.Second, s.Limits.Grace)
	require.Equal(t, 64*policy.GiB, s.Max.Memory)
	require.EqualValues(t, 5000, s.Max.PIDs)
	require.Zero(t, s.Limits.Disk, "a shipped limit is a default, not a demand")
	require.Equal(t, 20*policy.GiB, s.Defaults.Disk)
	require.Zero(t, s.Defaults.Memory, "a limit that was asked for is no default")

	sourceOf := map[string]string{}
	for _, o := range s.origins {
		sourceOf[o.Key] = o.Source
	}
	require.Equal(t, "--memory", sourceOf["memory"])
	require.Equal(t, "SANDBOX_TIMEOUT", sourceOf["timeout"])
	require.Equal(t, project+":2", sourceOf["cpus"])
	require.Equal(t, userFile(user)+":3", sourceOf["grace"])
	require.Equal(t, userFile(user)+":4", sourceOf["max.memory"])
	require.Equal(t, shippedSource, sourceOf["disk"])
}

// The corpus: a file that begins with ok- is accepted, every other has a line
// "# error: TEXT" that the error must hold.
func TestSettingsFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/settings/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			l, err := parseLayer(data, "sandbox.yaml", !strings.Contains(file, "untrusted"))
			if err == nil {
				shipped, shippedErr := shippedLayer()
				require.NoError(t, shippedErr)
				_, err = resolve([]layer{shipped, l})
			}
			if strings.HasPrefix(filepath.Base(file), "ok-") {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			wants := 0
			for line := range strings.Lines(string(data)) {
				if want, ok := strings.CutPrefix(strings.TrimSpace(line), "# error: "); ok {
					require.ErrorContains(t, err, want)
					wants++
				}
			}
			require.NotZero(t, wants, "the file does not say which error it must give")
		})
	}
}

func TestEnvironment(t *testing.T) {
	tests := map[string]struct{ pair, want, hint string }{
		"unknown":        {"SANDBOX_MEMROY=1g", "SANDBOX_MEMROY: unknown setting in the environment", "did you mean SANDBOX_MEMORY?"},
		"far from all":   {"SANDBOX_QWERTYUIOP=1", "unknown setting", "see all with: sandbox config"},
		"bad value":      {"SANDBOX_MEMORY=lots", `SANDBOX_MEMORY "lots": must be a number with a unit`, "correct SANDBOX_MEMORY, or unset it"},
		"out of range":   {"SANDBOX_CPUS=-1", `SANDBOX_CPUS "-1": must be more than 0`, ""},
		"GPUs":           {"SANDBOX_GPUS=0", `SANDBOX_GPUS "0": must be "all", a number from 1 to 64`, "correct SANDBOX_GPUS, or unset it"},
		"empty number":   {"SANDBOX_CPUS=", "SANDBOX_CPUS: must be a number", ""},
		"not a boolean":  {"SANDBOX_JSON=perhaps", "must be true or false", ""},
		"missing config": {"SANDBOX_CONFIG=/no/such/file", "settings /no/such/file: no such file or directory", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := sources{environ: []string{test.pair}}.load()
			require.ErrorContains(t, err, test.want)
			if test.hint != "" {
				require.Contains(t, hints(err), test.hint)
			}
			require.Equal(t, exitSandbox, exitCode(nil, flagProblems("sandbox run", err)))
		})
	}
}

// A flag that cannot be read is wrong usage; a value that is refused is refused.
func TestFlagProblems(t *testing.T) {
	tests := map[string]struct {
		key, text string
		want      int
	}{
		"unreadable size":     {"memory", "lots", exitUsage},
		"negative size":       {"memory", "-1g", exitSandbox},
		"no size":             {"memory", "0", exitSandbox},
		"unreadable duration": {"timeout", "soon", exitUsage},
		"negative duration":   {"timeout", "-5s", exitSandbox},
		"negative seconds":    {"timeout", "-5", exitSandbox},
		"unreadable number":   {"cpus", "two", exitUsage},
		"not a number":        {"cpus", "NaN", exitSandbox},
		"infinite":            {"cpus", "inf", exitSandbox},
		"negative count":      {"pids_limit", "-1", exitSandbox},
		"fraction of one":     {"pids_limit", "0.5", exitUsage},
		"GPUs":                {"gpus", "abc", exitUsage},
		"no GPUs":             {"gpus", "0", exitUsage},
		"all and another":     {"gpus", "all,0", exitUsage},
		"unknown driver":      {"gpu_driver", "bogus", exitUsage},
		"unknown transfer":    {"transfer", "bogus", exitUsage},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			flags := map[string]value{test.key: {text: test.text, source: "--" + test.key}}
			_, err := sources{configFile: emptyFile(t), flags: flags}.load()
			require.ErrorContains(t, err, "--"+test.key)
			require.Equal(t, test.want, exitCode(nil, flagProblems("sandbox run", err)))
		})
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "5": 5 * time.Second, "0.25": 250 * time.Millisecond,
	} {
		var d time.Duration
		require.NoError(t, durationTo(&d)(text))
		require.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "1 h", "1e300", "NaN", "10 minutes"} {
		require.Error(t, durationTo(new(time.Duration))(text), text)
	}
	for text, want := range map[string]string{"all": "all", "2": "2", "device=3": "device=3", `"device=0,1"`: "device=0,1", "": ""} {
		var gpus string
		require.NoError(t, gpusTo(&gpus)(text))
		require.Equal(t, want, gpus)
	}
	require.Error(t, textTo(new(string))("a\x00b"))
	for text, want := range map[string][]string{"": {}, "/a": {"/a"}, "/a:/b c": {"/a", "/b c"}} {
		var folders []string
		require.NoError(t, foldersTo(&folders)(text))
		require.Equal(t, want, folders)
	}
	for _, text := range []string{"a", "/a:b", "/a::/b", "/a\x00"} {
		require.Error(t, foldersTo(new([]string))(text), text)
	}
	require.ErrorContains(t, orWord("auto", countTo(new(int)))("-1"), "must be more than 0, or auto")
	require.NoError(t, orWord("auto", countTo(new(int)))("auto"))
}

// Names of files, variables and flags are unique, and every key can be set.
func TestKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range keys {
		for _, name := range []string{k.name, k.variable(), "--" + k.flag, "-" + k.short} {
			if name == "--" || name == "-" {
				continue
			}
			require.False(t, seen[name], name)
			seen[name] = true
		}
		require.NotNil(t, k.target(new(settings)), k.name)
	}
}

func TestDidYouMean(t *testing.T) {
	require.Equal(t, "did you mean network?", didYouMean("netwrok", keyNames()))
	require.Equal(t, "did you mean max.memory?", didYouMean("max.memry", keyNames()))
	require.Equal(t, "see all with: sandbox config", didYouMean("zzzzzzzz", keyNames()))
	require.Equal(t, 3, distance("kitten", "sitting"))
	require.Equal(t, 4, distance("", "four"))
}

func emptyFile(t *testing.T) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "empty.yaml"), "")
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
