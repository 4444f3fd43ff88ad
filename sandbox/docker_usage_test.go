package sandbox

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testContainer = "0123abcd"

// cgroupTree writes the files of a cgroup file system.
func cgroupTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		full := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o644))
	}
	return root
}

func v1Files(group string) map[string]string {
	return map[string]string{
		"memory/" + group + "/memory.max_usage_in_bytes": "1048576\n",
		"memory/" + group + "/memory.oom_control":        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		"cpuacct/" + group + "/cpuacct.usage":            "1500000000\n",
	}
}

func v2Files(group string) map[string]string {
	return map[string]string{
		group + "/memory.peak":    "1048576\n",
		group + "/memory.current": "4096\n",
		group + "/memory.events":  "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n",
		group + "/cpu.stat":       "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n",
	}
}

var (
	cgroupfsGroup = "docker/" + testContainer
	systemdGroup  = "system.slice/docker-" + testContainer + ".scope"
)

func TestCgroupSamples(t *testing.T) {
	for name, c := range map[string]struct {
		version int
		files   map[string]string
	}{
		"v1 of cgroupfs": {1, v1Files(cgroupfsGroup)},
		"v1 of systemd":  {1, v1Files(systemdGroup)},
		"v2 of cgroupfs": {2, v2Files(cgroupfsGroup)},
		"v2 of systemd":  {2, v2Files(systemdGroup)},
	} {
		t.Run(name, func(t *testing.T) {
			s := cgroupSamplerOf(cgroupTree(t, c.files), c.version, testContainer)
			require.NotNil(t, s)
			usage, ok := s.Sample(t.Context())
			require.True(t, ok)
			require.Equal(t, Usage{CPU: 1500 * time.Millisecond, PeakMemory: 1 << 20, OOMKills: 2}, usage)
			require.Equal(t, "cgroup v"+name[1:2]+", sampled", s.Source())
		})
	}
}

func TestCgroupOfNobody(t *testing.T) {
	v1, v2 := cgroupTree(t, v1Files(cgroupfsGroup)), cgroupTree(t, v2Files(cgroupfsGroup))
	require.Nil(t, cgroupSamplerOf(v1, 1, "another"))
	require.Nil(t, cgroupSamplerOf(v2, 2, "another"))
	require.Nil(t, cgroupSamplerOf(v1, 2, testContainer))
	require.Nil(t, cgroupSamplerOf(v2, 1, testContainer))
	require.Nil(t, cgroupSamplerOf(v2, 0, testContainer), "an engine that does not say")
	require.Nil(t, cgroupSamplerOf(filepath.Join(v2, "nowhere"), 2, testContainer))
}

// Before Linux 5.19 there is no memory.peak.
func TestPeakFromSamples(t *testing.T) {
	files := v2Files(systemdGroup)
	delete(files, systemdGroup+"/memory.peak")
	root := cgroupTree(t, files)
	s := cgroupSamplerOf(root, 2, testContainer)
	for _, step := range []struct {
		now  string
		peak int64
	}{{"4096\n", 4096}, {"9000\n", 9000}, {"100\n", 9000}, {"9001", 9001}} {
		require.NoError(t, os.WriteFile(filepath.Join(root, systemdGroup, "memory.current"), []byte(step.now), 0o644))
		usage, ok := s.Sample(t.Context())
		require.True(t, ok)
		require.Equal(t, step.peak, usage.PeakMemory)
	}
}

// The last reading may come while a sample is taken.
func TestSamplesAtOnce(t *testing.T) {
	files := v2Files(systemdGroup)
	delete(files, systemdGroup+"/memory.peak")
	s := cgroupSamplerOf(cgroupTree(t, files), 2, testContainer)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if usage, ok := s.Sample(t.Context()); !ok || usage.PeakMemory != 4096 {
					t.Errorf("Sample = %v, %v", usage, ok)
				}
			}
		})
	}
	all.Wait()
}

func TestSampleOfACgroupThatIsGoneOrDamaged(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"is gone":                func(dir string) error { return os.RemoveAll(dir) },
		"has no cpu.stat":        func(dir string) error { return os.Remove(dir + "/cpu.stat") },
		"has no memory":          func(dir string) error { return os.Remove(dir + "/memory.peak") },
		"has no events":          func(dir string) error { return os.Remove(dir + "/memory.events") },
		"has an empty cpu.stat":  func(dir string) error { return os.WriteFile(dir+"/cpu.stat", nil, 0o644) },
		"has no usage":           func(dir string) error { return os.WriteFile(dir+"/cpu.stat", []byte("user_usec 1\n"), 0o644) },
		"has words for numbers":  func(dir string) error { return os.WriteFile(dir+"/memory.peak", []byte("max\n"), 0o644) },
		"has words for a number": func(dir string) error { return os.WriteFile(dir+"/memory.events", []byte("oom_kill many\n"), 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			files := v2Files(cgroupfsGroup)
			delete(files, cgroupfsGroup+"/memory.current")
			root := cgroupTree(t, files)
			s := cgroupSamplerOf(root, 2, testContainer)
			_, ok := s.Sample(t.Context())
			require.True(t, ok)
			require.NoError(t, damage(filepath.Join(root, cgroupfsGroup)))
			_, ok = s.Sample(t.Context())
			require.False(t, ok, "the last good sample stands")
		})
	}
}

func TestReadCounter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		text, field string
		want        int64
		ok          bool
	}{
		{"42\n", "", 42, true},
		{" 42 ", "", 42, true},
		{"9223372036854775807", "", 1<<63 - 1, true},
		{"9223372036854775808", "", 1<<63 - 1, false},
		{"", "", 0, false},
		{"a 1\nb 2\n", "b", 2, true},
		{"a 1\nb 2", "a", 1, true},
		{"aa 1\n", "a", 0, false},
		{"a\n", "a", 0, false},
		{"oom 3\noom_kill 2\n", "oom", 3, true},
	} {
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o644))
		got, ok := readCounter(path, c.field)
		require.Equal(t, c.ok, ok, "%+v", c)
		if c.ok {
			require.Equal(t, c.want, got, "%+v", c)
		}
	}
}
