package docker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
)

func TestReadCgroup(t *testing.T) {
	v1 := map[string]string{
		"cpuacct/docker/c1/cpuacct.usage":            "44675356\n",
		"memory/docker/c1/memory.usage_in_bytes":     "2301952\n",
		"memory/docker/c1/memory.max_usage_in_bytes": "3821568\n",
		"memory/docker/c1/memory.stat":               "cache 5\ninactive_file 1\ntotal_inactive_file 1896448\n",
		"pids/docker/c1/pids.current":                "4\n",
	}
	v2 := map[string]string{
		"system.slice/c1/cpu.stat":       "usage_usec 1500\nuser_usec 1000\n",
		"system.slice/c1/memory.current": "5000\n",
		"system.slice/c1/memory.stat":    "anon 1\ninactive_file 2000\n",
		"system.slice/c1/pids.current":   "2\n",
	}
	with := func(files map[string]string, name, content string) map[string]string {
		all := map[string]string{}
		for n, c := range files {
			all[n] = c
		}
		all[name] = content
		return all
	}
	const text1 = "9:name=systemd:/docker/c1\n8:pids:/docker/c1\n4:memory:/docker/c1\n2:cpu:/docker/c1\n1:cpuacct:/docker/c1\n0::/\n"
	const text2 = "0::/system.slice/c1\n"
	of2 := engine.Usage{CPU: 1500 * time.Microsecond, PeakMemory: 5000, Memory: 3000, Processes: 2, Source: "cgroup v2, sampled"}
	peak2 := of2
	peak2.PeakMemory = 9000
	for name, c := range map[string]struct {
		files map[string]string
		text  string
		want  engine.Usage
		ok    bool
	}{
		"version 1": {v1, text1, engine.Usage{CPU: 44675356, PeakMemory: 3821568, Memory: 405504, Processes: 4, Source: "cgroup v1, sampled"}, true},
		"version 2": {v2, text2, of2, true},
		"its peak":  {with(v2, "system.slice/c1/memory.peak", "9000\n"), text2, peak2, true},
		"elsewhere": {v2, "0::/../../system.slice/c1\n", engine.Usage{}, false},
		"gone":      {nil, text1, engine.Usage{}, false},
		"garbage":   {with(v2, "system.slice/c1/pids.current", "max\n"), text2, engine.Usage{}, false},
		"nothing":   {v2, "", engine.Usage{}, false},
	} {
		root := t.TempDir()
		for path, content := range c.files {
			require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(content), 0o600))
		}
		got, ok := readCgroup(root, c.text)
		require.Equal(t, c.ok, ok, name)
		if c.ok {
			require.Equal(t, c.want, got, name)
		}
	}
}
