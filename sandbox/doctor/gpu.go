package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// gpuProbe is a program that lists the NVIDIA devices and the driver that it sees.
const gpuProbe = `
import glob, os
print("devices", ", ".join(sorted(glob.glob("/dev/nvidia*"))) or "none")
print("variable", os.environ.get("NVIDIA_VISIBLE_DEVICES", "not set"))
try:
    print("driver", open("/proc/driver/nvidia/version").readline().strip())
except OSError:
    print("driver", "none")
`

// Where the driver and the specifications of devices are on a machine with NVIDIA GPUs.
const (
	driverVersion = "proc/driver/nvidia/version"
	maxVersion    = 4 << 10
)

var specDirs = []string{"etc/cdi", "var/run/cdi"}

// seeGPUs reports the GPUs of this machine and of the engine. It also returns the version of
// the driver, empty without one.
func (m Machine) seeGPUs(ctx context.Context, info engine.Info) (findings []Finding, driver string) {
	if info.Local {
		findings, driver = hostGPUs("/")
	}
	report, err := m.Runner.GPUs(ctx)
	if err != nil {
		return append(findings, failed("GPUs", err)), driver
	}
	for _, line := range report.LookedAt {
		check, seen, _ := strings.Cut(line, ": ")
		findings = append(findings, Finding{Check: "GPU " + check, Verdict: Info, Seen: seen})
	}
	if devices := info.Host.GPUs.CDIDevices; len(devices) > 0 {
		findings = append(findings, Finding{Check: "GPU CDI devices", Verdict: Info, Seen: strings.Join(devices, ", ")})
	}
	return findings, driver
}

// hostGPUs looks at the devices, the driver and the specifications below a root directory. It
// also returns the version of the driver, empty without one.
func hostGPUs(root string) (findings []Finding, driver string) {
	count := func(check, noun string, patterns ...string) {
		f := Finding{Check: check, Verdict: Info, Seen: "none"}
		var found []string
		for _, pattern := range patterns {
			matches, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are well-formed
			for _, match := range matches {
				found = append(found, "/"+strings.TrimPrefix(strings.TrimPrefix(match, root), "/"))
			}
		}
		if len(found) > 0 {
			f.Seen = text.Fit(text.Count(len(found), noun)+": "+strings.Join(found, ", "), 400)
		}
		findings = append(findings, f)
	}
	count("GPU devices", "device", "dev/nvidia[0-9]*")
	f := Finding{Check: "GPU driver", Verdict: Info, Seen: "none: the NVIDIA kernel driver is not loaded"}
	if file, err := os.Open(filepath.Join(root, driverVersion)); err == nil {
		line, _ := io.ReadAll(io.LimitReader(file, maxVersion)) // an unreadable file is an empty one
		_ = file.Close()
		first, _, _ := strings.Cut(string(line), "\n")
		if driver = text.OneLine(first); driver != "" {
			f.Seen = driver
		}
	}
	findings = append(findings, f)
	var patterns []string
	for _, dir := range specDirs {
		patterns = append(patterns, dir+"/*.json", dir+"/*.yaml")
	}
	count("GPU CDI files", "file", patterns...)
	return findings, driver
}

// tryGPU runs a program with one GPU. Without a driver on the engine's machine, what the
// engine hands out is a stand-in.
func (m Machine) tryGPU(ctx context.Context, noDriver bool) Finding {
	const check = "GPU one run"
	req := m.program(gpuProbe)
	req.Name, req.GPUs, req.GPUWait = "doctor", "1", 10*time.Second
	req.Limits = policy.Limits{Timeout: 30 * time.Second, Memory: 256 * policy.MiB}
	res, err := m.Runner.Run(ctx, req)
	if err != nil {
		f := failed(check, err)
		f.Advice = "install NVIDIA's driver and container toolkit on the engine's machine; see docs/gpus.md"
		return f
	}
	f := judgeGPU(check, res, noDriver)
	if f.Verdict == Fail {
		return f
	}
	if err := m.Runner.Store().Remove(res.ID); err != nil {
		return failed(check, err)
	}
	return f
}

// judgeGPU judges the run with a GPU.
func judgeGPU(check string, res *result.Result, noDriver bool) Finding {
	seen := map[string]string{}
	for line := range strings.Lines(res.Stdout) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		seen[key] = value
	}
	f := Finding{Check: check, Verdict: OK, Seen: fmt.Sprintf("a program with one GPU sees devices: %s; NVIDIA_VISIBLE_DEVICES: %s; driver: %s",
		seen["devices"], seen["variable"], seen["driver"])}
	switch {
	case res.Status != result.StatusExited || res.ExitCode != 0 || seen["devices"] == "":
		f.Verdict, f.Seen = Fail, "a program with one GPU ended as "+string(res.Status)+": "+text.OneLine(res.Explanation)
		f.Advice = "see what happened with: sandbox show " + res.ID
	case noDriver:
		f.Verdict, f.Seen = Warn, f.Seen+"; this machine has no NVIDIA driver, so the device is a stand-in"
	case seen["devices"] == "none":
		f.Verdict, f.Advice = Fail, "the engine accepted the request and gave the program no device: check the container toolkit"
	}
	return f
}
