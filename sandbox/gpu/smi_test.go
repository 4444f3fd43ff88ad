//go:build unix

package gpu

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// standIn puts a shell script in the place of nvidia-smi.
func standIn(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if script != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+script), 0o755))
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestDetectGPUInfo(t *testing.T) {
	none := `{"cuda_available":false,"gpu_count":0,"gpu_names":[]}`
	for name, test := range map[string]struct{ script, want string }{
		"two":      {"[ \"$*\" = '--query-gpu=name --format=csv,noheader' ] && printf 'NVIDIA H200\\nTesla T4\\n'", `{"cuda_available":true,"gpu_count":2,"gpu_names":["NVIDIA H200","Tesla T4"]}`},
		"no tool":  {"", none},
		"no GPU":   {"echo No devices were found; exit 6", none},
		"claims":   {"echo 'Failed to initialize NVML: Driver/library version mismatch'", none},
		"fails":    {"echo Tesla T4; exit 9", none},
		"crashes":  {"kill -SEGV $$", none},
		"is empty": {"exit 0", none},
		"endless":  {"head -c 3000000 /dev/zero | tr '\\0' 'A'", none},
	} {
		t.Run(name, func(t *testing.T) {
			standIn(t, test.script)
			got, err := json.Marshal(DetectGPUInfo(t.Context()))
			require.NoError(t, err)
			require.JSONEq(t, test.want, string(got))
		})
	}
}

// TestDetectGPUInfoDoesNotHang ends an nvidia-smi that never answers, though a
// child of it keeps its stdout open.
func TestDetectGPUInfoDoesNotHang(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	require.NoError(t, syscall.Mkfifo(started, 0o600))
	standIn(t, "sleep 600 & echo $! > '"+started+"'; wait")
	ctx, cancel := context.WithCancel(t.Context())
	child := make(chan string, 1)
	go func() {
		pid, err := os.ReadFile(started) // blocks until it is written
		if err != nil {
			pid = nil
		}
		cancel()
		child <- strings.TrimSpace(string(pid))
	}()
	require.Equal(t, Info{GPUNames: []string{}}, DetectGPUInfo(ctx))
	pid, err := strconv.Atoi(<-child)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}

func TestProbe(t *testing.T) {
	row := func(id string) string { return id + ", GPU-" + id + ", Tesla T4, 15360, 3, 0, Disabled" }
	for name, test := range map[string]struct {
		script string
		want   []string
		err    string
	}{
		"healthy":                            {"echo '" + row("0") + "'; echo '" + row("1") + "'", []string{"0", "1"}, ""},
		"no tool":                            {"", nil, "nvidia-smi not found"},
		"no GPU":                             {"echo 'No devices were found'; exit 6", nil, `nvidia-smi says "No devices were found" (exit status 6)`},
		"on error":                           {"echo oops >&2; exit 1", nil, `nvidia-smi says "oops"`},
		"claims":                             {"echo 'Failed to initialize NVML: Unknown Error'", nil, `nvidia-smi says "Failed to initialize NVML: Unknown Error"`},
		"rows count more than the exit code": {"echo '" + row("0") + "'; echo 'WARNING: infoROM is corrupted at gpu 0000:0A:00.0'; exit 14", []string{"0"}, ""},
		"an old driver": {`case "$*" in *mig*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2;; esac; echo '0, GPU-0, Tesla K80, 11441, 0, 0'`,
			[]string{"0"}, ""},
		"one of three is lost": {`case "$*" in
  *--id=0) echo '` + row("0") + `';; *--id=2) echo '` + row("2") + `';;
  *--id=3) echo 'No devices were found'; exit 6;;
  *) echo 'Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU'; exit 15;;
esac`, []string{"0", "1!", "2"}, ""},
		"the only one is lost": {`case "$*" in *--id=0|*noheader,nounits) echo 'Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.'; exit 15;; esac; exit 6`,
			nil, "GPU is lost"},
		"control sequences": {`printf '\033[31mred\n'; exit 1`, nil, `nvidia-smi says "?[31mred"`},
	} {
		t.Run(name, func(t *testing.T) {
			standIn(t, test.script)
			devices, err := Probe(t.Context())
			var got []string
			for _, d := range devices {
				if d.Problem != "" {
					d.ID += "!"
				}
				got = append(got, d.ID)
			}
			require.Equal(t, test.want, got)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
}
