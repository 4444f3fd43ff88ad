package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/versions"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// checkEngine judges what the engine says of itself.
func checkEngine(info engine.Info) []finding {
	about := finding{Check: "engine", Verdict: verdictOK,
		Seen: fmt.Sprintf("%s %s on %s, %s", info.Name, info.Version, info.OS, info.Kernel)}
	api := finding{Check: "engine API", Verdict: verdictOK, Seen: info.APIVersion}
	if versions.LessThan(info.APIVersion, docker.OldestAPI) {
		api.Verdict, api.Mend = verdictFail, "install Docker 20.10 (API "+docker.OldestAPI+") or newer"
	}
	seccomp := finding{Check: "seccomp", Verdict: verdictOK, Seen: "system calls can be filtered"}
	if !info.Seccomp {
		seccomp.Verdict, seccomp.Seen = verdictFail, "the engine cannot filter system calls"
		seccomp.Mend = "use a kernel with CONFIG_SECCOMP_FILTER and an engine that is built with seccomp"
	}
	return []finding{about, api, checkRunc(info.Runc), seccomp, checkCgroup(info), checkStorage(info.StorageDriver), checkRuntimes(info.Host)}
}

// checkStorage says which storage drivers make every start dear: measured, a container on
// fuse-overlayfs costs the engine twice the processor time of one on overlay2, and vfs
// copies the whole image.
func checkStorage(driver string) finding {
	f := finding{Check: "storage", Verdict: verdictInfo, Seen: "driver " + driver}
	switch driver {
	case "fuse-overlayfs":
		f.Seen += ": a start costs the engine about twice the processor time of overlay2"
	case "vfs":
		f.Seen += ": every start copies the whole image"
	case "":
		f.Seen = "the engine does not name its driver"
		return f
	default:
		f.Verdict = verdictOK
		return f
	}
	f.Mend = "for faster starts: set storage-driver to overlay2 in the engine's daemon.json, if its disk supports it"
	return f
}

var versionPattern = regexp.MustCompile(`^v?(\d+)\.(\d+)\.(\d+)`)

// checkRunc warns of a runc with CVE-2024-21626: a leaked descriptor through which
// a program leaves its container.
func checkRunc(text string) finding {
	f := finding{Check: "runc", Verdict: verdictOK, Seen: text}
	numbers := versionPattern.FindStringSubmatch(text)
	if numbers == nil {
		f.Verdict, f.Seen = verdictInfo, fmt.Sprintf("the engine does not tell its version (%q)", text)
		return f
	}
	if older(numbers[1:], []int{1, 1, 12}) {
		f.Verdict = verdictWarn
		f.Seen += ": older than 1.1.12, which closed a way out of containers (CVE-2024-21626)"
		f.Mend = "update runc, or make sure that your distribution has mended this version (Debian has in 1.1.5+ds1-1+deb12u1)"
	}
	return f
}

func older(version []string, than []int) bool {
	for i, text := range version {
		n, err := strconv.Atoi(text)
		if err != nil || n != than[i] {
			return err == nil && n < than[i]
		}
	}
	return false
}

// checkCgroup lists what the kernel can enforce.
func checkCgroup(info engine.Info) finding {
	f := finding{Check: "cgroup", Verdict: verdictOK,
		Seen: fmt.Sprintf("version %d (%s driver)", info.Host.CgroupVersion, info.CgroupDriver)}
	var missing []string
	for _, c := range []struct {
		ok   bool
		what string
	}{{info.MemoryLimit, "memory"}, {info.CPUQuota, "processors"}, {info.PIDsLimit, "processes"}} {
		if !c.ok {
			missing = append(missing, c.what)
		}
	}
	switch {
	case info.Rootless && info.Host.CgroupVersion == 1:
		f.Verdict, f.Seen = verdictFail, f.Seen+": a rootless engine cannot limit anything with it"
		f.Mend = "boot with cgroup version 2 (systemd.unified_cgroup_hierarchy=1)"
	case len(missing) > 0:
		f.Verdict, f.Seen = verdictFail, f.Seen+": cannot limit "+strings.Join(missing, ", ")
		f.Mend = "enable these controllers on the kernel's command line, such as cgroup_enable=memory"
	case !info.SwapLimit:
		f.Verdict, f.Seen = verdictWarn, f.Seen+": cannot limit swap, so that memory may exceed its limit on disk"
		f.Mend = "boot with swapaccount=1, or turn swap off"
	default:
		f.Seen += ": limits memory, swap, processors and processes"
	}
	return f
}

// checkRuntimes tells what could be asked for.
func checkRuntimes(host sandbox.Host) finding {
	gpus := "no way to hand out GPUs"
	switch {
	case host.GPUs.NVIDIA && host.GPUs.CDI:
		gpus = "GPUs with the NVIDIA runtime and CDI"
	case host.GPUs.NVIDIA:
		gpus = "GPUs with the NVIDIA runtime"
	case host.GPUs.Any():
		gpus = "GPUs with CDI"
	}
	return finding{Check: "runtimes", Verdict: verdictInfo,
		Seen: fmt.Sprintf("%s (default %s); %s", strings.Join(host.Runtimes, ", "), host.DefaultRuntime, gpus)}
}

// checkLeftovers looks for containers that nobody will remove.
func checkLeftovers(ctx context.Context, runner *sandbox.Runner) finding {
	const check = "leftovers"
	report, err := runner.GC(ctx, sandbox.GCOptions{DryRun: true})
	switch n := len(report.Removed); {
	case err != nil:
		return failed(check, err)
	case n > 0:
		return finding{Check: check, Verdict: verdictWarn,
			Seen: fmt.Sprintf("%d containers whose owner is gone", n), Mend: "remove them with: sandbox gc"}
	}
	return finding{Check: check, Verdict: verdictOK, Seen: "no container without an owner"}
}

// checkImage looks for the image of a run that names none.
func checkImage(ctx context.Context, runner *sandbox.Runner, s settings) (finding, sandbox.Spec) {
	const check = "image"
	catalog, err := s.catalog()
	if err != nil {
		return failed(check, err), sandbox.Spec{}
	}
	spec, err := runner.Plan(ctx, probeRequest(s, "pass"))
	if err != nil {
		return failed(check, err), sandbox.Spec{}
	}
	image := spec.Class.Image
	f := finding{Check: check, Verdict: verdictOK}
	locked := "locked"
	if !image.Locked {
		f.Verdict, locked = verdictInfo, "not locked"
		f.Mend = "to have runs refuse any other: sandbox image lock " + image.Reference
	}
	f.Seen = fmt.Sprintf("%s %s (%s), %s; the catalog names %s", image.Reference, image.ID, image.Platform, locked, names(catalog))
	return f, spec
}

// checkTransfer tells how the files of a run reach the engine.
func checkTransfer(spec sandbox.Spec) finding {
	f := finding{Check: "files", Verdict: verdictOK, Seen: "the engine sees the folders of this machine: they are mounted (bind)"}
	if spec.Class.Transfer == sandbox.TransferCopy {
		f.Verdict, f.Seen = verdictInfo, "are copied to the engine and back (copy), which takes longer"
	}
	return f
}

func names(catalog images.Catalog) string { return strings.Join(catalog.Names(), ", ") }
