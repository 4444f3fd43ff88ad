package settings

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// alone loads settings of this environment without the user's file.
func alone(t *testing.T, file string, flags Flags) (Settings, error) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	return Load(file, flags)
}

// The file that is shipped and the tables of limits agree.
func TestShippedSettings(t *testing.T) {
	s, err := alone(t, emptyFile(t), nil)
	require.NoError(t, err)
	require.Equal(t, policy.Default(), s.Defaults)
	egress, err := policy.Policy{AllowEgress: policy.Open}.ApplyEgress(&policy.Egress{Level: policy.Open})
	require.NoError(t, err)
	require.Equal(t, egress.Limits, s.EgressDefaults)
	require.Zero(t, s.Limits)
	require.Zero(t, s.Max)
	require.False(t, s.AllowNetwork || s.AllowRoot || s.JSON || s.Quiet || s.Raw)
	require.Equal(t, "none", s.Network)
	require.Len(t, s.origins, len(keys()))
	for _, o := range s.origins {
		require.Equal(t, "default", o.Source, o.Key)
	}
	_, err = s.Policy().Apply(s.Limits)
	require.NoError(t, err)
}

// Each layer has memory, and one key that no stronger layer has.
func TestPrecedence(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	user := treetest.File(t, UserFile(), "memory: 1g\ncpus: 1\ngrace: 1s\nmax: {memory: 64g}\nmax.cpus: 8\n")
	project := treetest.File(t, filepath.Join(t.TempDir(), "sandbox.yaml"), "memory: 2g\ncpus: 2.5\ntimeout: 90\nmax: {cpus: 4}\n")
	t.Setenv("SANDBOX_MEMORY", "3g")
	t.Setenv("SANDBOX_TIMEOUT", "2m")
	t.Setenv("SANDBOX_MAX_PIDS_LIMIT", "5000")
	t.Setenv("SANDBOX_IMAGE", "")
	s, err := Load(project, Flags{"memory": {"4g", "--memory"}})
	require.NoError(t, err)
	require.Equal(t, 4*policy.GiB, s.Limits.Memory)
	require.Equal(t, 2*time.Minute, s.Limits.Timeout)
	require.InDelta(t, 2.5, s.Limits.CPUs, 0)
	require.Equal(t, time.Second, s.Limits.Grace)
	require.Equal(t, 64*policy.GiB, s.Max.Memory)
	require.InDelta(t, 4, s.Max.CPUs, 0, "a key is the same however it is written")
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
	require.Equal(t, "SANDBOX_IMAGE", sourceOf["image"], "an empty variable is a value")
	require.Equal(t, project+":2", sourceOf["cpus"])
	require.Equal(t, user+":3", sourceOf["grace"])
	require.Equal(t, user+":4", sourceOf["max.memory"])
	require.Equal(t, "default", sourceOf["disk"])
}

// Of a context and a host the stronger layer decides; one layer cannot have both.
func TestOneEngine(t *testing.T) {
	project := treetest.File(t, filepath.Join(t.TempDir(), "sandbox.yaml"), "context: a\nhost: unix:///b\n")
	_, err := alone(t, project, nil)
	require.EqualError(t, err, project+`:1: context "a": cannot be given together with host`)

	flags := Flags{"host": {"unix:///c", "--host"}}
	s, err := alone(t, project, flags)
	require.NoError(t, err)
	require.Equal(t, docker.Address{Host: "unix:///c"}, s.Engine)
	require.Contains(t, s.Origins(), Origin{"context", "", project + ":1"})

	t.Setenv("SANDBOX_CONTEXT", "d")
	s, err = alone(t, emptyFile(t), flags)
	require.NoError(t, err)
	require.Equal(t, docker.Address{Host: "unix:///c"}, s.Engine)

	flags["context"] = Flag{"e", "--context"}
	_, err = alone(t, emptyFile(t), flags)
	require.EqualError(t, err, `--context "e": cannot be given together with --host`)
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.True(t, refused.Usage)
}

// The corpus: a file that begins with ok- is accepted, every other has a line
// "# error: TEXT" that the error must hold.
func TestSettingsFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			trusted := !strings.Contains(file, "untrusted")
			_, err = parseFile(data, "sandbox.yaml", fromProject, trusted)
			if err == nil && trusted {
				copied := filepath.Join(t.TempDir(), "sandbox.yaml")
				_, err = alone(t, treetest.File(t, copied, string(data)), nil)
				if err != nil {
					err = errors.New(strings.ReplaceAll(err.Error(), copied, "sandbox.yaml"))
				}
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

// TestDeadlineIsNotASetting: this command may be the program of a run.
func TestDeadlineIsNotASetting(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("SANDBOX_DEADLINE", "1800000000.000")
	_, err := Load("", nil)
	require.NoError(t, err)
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
			name, text, _ := strings.Cut(test.pair, "=")
			t.Setenv(name, text)
			_, err := alone(t, "", nil)
			require.ErrorContains(t, err, test.want)
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.False(t, refused.Usage)
			require.Contains(t, refused.Hint(), test.hint)
		})
	}
}

// A flag that cannot be read is wrong usage; a value that is refused is refused.
func TestFlagProblems(t *testing.T) {
	tests := map[string]struct {
		key, text string
		usage     bool
	}{
		"unreadable size":     {"memory", "lots", true},
		"negative size":       {"memory", "-1g", false},
		"no size":             {"memory", "0", false},
		"unreadable duration": {"timeout", "soon", true},
		"negative duration":   {"timeout", "-5s", false},
		"negative seconds":    {"timeout", "-5", false},
		"unreadable number":   {"cpus", "two", true},
		"not a number":        {"cpus", "NaN", false},
		"infinite":            {"cpus", "inf", false},
		"negative count":      {"pids_limit", "-1", false},
		"fraction of one":     {"pids_limit", "0.5", true},
		"GPUs":                {"gpus", "abc", true},
		"no GPUs":             {"gpus", "0", true},
		"all and another":     {"gpus", "all,0", true},
		"unknown driver":      {"gpu_driver", "bogus", true},
		"unknown transfer":    {"transfer", "bogus", true},
		"not a boolean":       {"json", "perhaps", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			given := Flags{}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			given.Add(flags, test.key)
			flag := "--" + strings.ReplaceAll(test.key, "_", "-")
			require.NoError(t, flags.Parse([]string{flag + "=" + test.text}))
			_, err := alone(t, emptyFile(t), given)
			require.ErrorContains(t, err, flag)
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, test.usage, refused.Usage)
		})
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "5": 5 * time.Second, "0.25": 250 * time.Millisecond,
	} {
		d, err := readTime(text)
		require.NoError(t, err)
		require.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "1 h", "1e300", "NaN", "10 minutes"} {
		_, err := readTime(text)
		require.Error(t, err, text)
	}
	for text, want := range map[string]string{"all": "all", "2": "2", "device=3": "device=3", `"device=0,1"`: "device=0,1", "": ""} {
		gpus, err := readGPUs(text)
		require.NoError(t, err)
		require.Equal(t, want, gpus)
	}
	_, err := readText("a\x00b")
	require.Error(t, err)
	for text, want := range map[string][]string{"": {}, "/a": {"/a"}, "/a:/b c": {"/a", "/b c"}} {
		all, err := readDirectories(text)
		require.NoError(t, err)
		require.Equal(t, want, all)
	}
	for _, text := range []string{"a", "/a:b", "/a::/b", "/a\x00"} {
		_, err := readDirectories(text)
		require.Error(t, err, text)
	}
	_, set := limitTo(new(int), "auto")
	require.ErrorContains(t, set("-1"), "must be more than 0, or auto")
	require.NoError(t, set("auto"))
}

// Names of files, variables and flags are unique, and every key can be set.
func TestKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range keys() {
		names := []string{k.name, k.variable()}
		if k.help != "" {
			names = append(names, "--"+k.flagName())
		}
		if k.letter != "" {
			names = append(names, "-"+k.letter)
		}
		for _, name := range names {
			require.False(t, seen[name], name)
			seen[name] = true
		}
		require.NotNil(t, k.set, k.name)
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
	return treetest.File(t, filepath.Join(t.TempDir(), "empty.yaml"), "")
}

// A cluster and an address of Docker contradict each other, unless the address is in a weaker layer.
func TestCluster(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	file := treetest.File(t, filepath.Join(t.TempDir(), "sandbox.yaml"), `host: unix:///b
kubernetes:
  namespace: runs
  programs: registry.example/programs`+digest+`
  images: [debian=registry.example:5000/debian`+digest+`]
  node_selector: [pool=runs, disk=ssd]
  tolerations: ["runs=only:NoSchedule"]
  pull_secrets: [one, two]
`)
	s, err := alone(t, file, nil)
	require.NoError(t, err)
	require.Equal(t, Docker, s.EngineKind)
	require.Equal(t, "unix:///b", s.Engine.Host)

	flags := Flags{"engine": {Kubernetes, "--engine"}}
	t.Setenv("SANDBOX_KUBERNETES_SCHEDULE_TIMEOUT", "2m")
	s, err = alone(t, file, flags)
	require.NoError(t, err)
	require.Empty(t, s.Engine.Host)
	require.Equal(t, engine.Cluster{
		Namespace: "runs", Programs: "registry.example/programs" + digest, NodeSelector: map[string]string{"pool": "runs", "disk": "ssd"},
		Tolerations: []string{"runs=only:NoSchedule"}, PullSecrets: []string{"one", "two"},
		GPUResource: "nvidia.com/gpu", CPUShare: 1, ScheduleTimeout: 2 * time.Minute,
	}, s.Cluster)
	require.Equal(t, map[string]string{"debian": "registry.example:5000/debian" + digest}, s.ClusterImages)

	flags["host"] = Flag{"unix:///c", "--host"}
	_, err = alone(t, file, flags)
	require.EqualError(t, err, `--host "unix:///c": names a Docker engine, but --engine is kubernetes`)

	for variable, text := range map[string]string{
		"SANDBOX_ENGINE": "podman", "SANDBOX_KUBERNETES_PROGRAMS": "registry.example/programs:1",
		"SANDBOX_KUBERNETES_IMAGES": "debian=debian:12", "SANDBOX_KUBERNETES_NODE_SELECTOR": "pool=a,pool=b",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, text)
			_, err := alone(t, emptyFile(t), nil)
			require.ErrorContains(t, err, variable)
		})
	}
}
