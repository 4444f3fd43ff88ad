package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/docker/docker/api/types/versions"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// checkAddress judges the way to the engine.
func checkAddress(endpoint dockerhost.Endpoint, err error) Finding {
	const check = "engine address"
	if err != nil {
		return failed(check, err)
	}
	f := Finding{Check: check, Verdict: OK, Seen: endpoint.Host}
	if endpoint.Context != "default" {
		f.Seen += ", of the context " + endpoint.Context
	}
	if endpoint.From != "" {
		f.Seen += " (from " + endpoint.From + ")"
	}
	if endpoint.Warning != "" {
		f.Verdict, f.Seen, f.Advice = Warn, endpoint.Warning, dockerhost.AdviceInsecure
	}
	return f
}

// checkEngine judges the engine by its own description.
func checkEngine(info engine.Info) []Finding {
	about := Finding{Check: "engine", Verdict: OK,
		Seen: fmt.Sprintf("%s %s on %s, %s", info.Name, info.Version, info.OS, info.Kernel)}
	api := Finding{Check: "engine API", Verdict: OK, Seen: info.APIVersion}
	if versions.LessThan(info.APIVersion, docker.OldestAPI) {
		api.Verdict, api.Advice = Fail, "install Docker 20.10 (API "+docker.OldestAPI+") or newer"
	}
	seccomp := Finding{Check: "seccomp", Verdict: OK, Seen: "system calls can be filtered"}
	if !info.Seccomp {
		seccomp.Verdict, seccomp.Seen = Fail, "the engine cannot filter system calls"
		seccomp.Advice = "use a kernel with CONFIG_SECCOMP_FILTER and an engine that is built with seccomp"
	}
	return []Finding{about, api, checkRunc(info.Runc), seccomp, checkCgroup(info), checkStorage(info.StorageDriver), checkRuntimes(info.Host)}
}

// checkStorage says which storage drivers make every start slow: measured, a container on
// fuse-overlayfs costs the engine twice the processor time of one on overlay2, and vfs
// copies the whole image.
func checkStorage(driver string) Finding {
	f := Finding{Check: "storage", Verdict: Info, Seen: "driver " + driver}
	switch driver {
	case "fuse-overlayfs":
		f.Seen += ": a start costs the engine about twice the processor time of overlay2"
	case "vfs":
		f.Seen += ": every start copies the whole image"
	case "":
		f.Seen = "the engine does not name its driver"
		return f
	default:
		f.Verdict = OK
		return f
	}
	f.Advice = "for faster starts: set storage-driver to overlay2 in the engine's daemon.json, if its disk supports it"
	return f
}

var versionPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^v?(\d+)\.(\d+)\.(\d+)`) })

// checkRunc warns of a runc with CVE-2024-21626: a leaked descriptor through which a program
// leaves its container.
func checkRunc(version string) Finding {
	f := Finding{Check: "runc", Verdict: OK, Seen: version}
	numbers := versionPattern().FindStringSubmatch(version)
	switch {
	case numbers == nil:
		f.Verdict, f.Seen = Info, fmt.Sprintf("the engine does not report its version (%q)", version)
	case !older(numbers[1:], []int{1, 1, 12}):
	case patchedByDebian(version):
		f.Seen += ": Debian's fix of CVE-2024-21626 is in it"
	default:
		f.Verdict = Warn
		f.Seen += ": older than 1.1.12, which closed a way out of containers (CVE-2024-21626)"
		f.Advice = "update runc, or make sure that your distribution has fixed this version"
	}
	return f
}

var debianRunc = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^1\.1\.5\+ds1-1\+deb12u(\d+)`) })

// patchedByDebian reports whether a version of runc is Debian 12's with the fix, which came
// with 1.1.5+ds1-1+deb12u1.
func patchedByDebian(version string) bool {
	update := debianRunc().FindStringSubmatch(version)
	return update != nil && !older(update[1:], []int{1})
}

// older reports whether a version is lower. Numbers that only one of the two has do not count.
func older(version []string, than []int) bool {
	for i, limit := range than[:min(len(version), len(than))] {
		n, err := strconv.Atoi(version[i])
		if err != nil || n != limit {
			return err == nil && n < limit
		}
	}
	return false
}

// checkCgroup lists the limits that the kernel can enforce.
func checkCgroup(info engine.Info) Finding {
	f := Finding{Check: "cgroup", Verdict: OK,
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
		f.Verdict, f.Seen = Fail, f.Seen+": a rootless engine cannot limit anything with it"
		f.Advice = "boot with cgroup version 2 (systemd.unified_cgroup_hierarchy=1)"
	case len(missing) > 0:
		f.Verdict, f.Seen = Fail, f.Seen+": cannot limit "+strings.Join(missing, ", ")
		f.Advice = "enable these controllers on the kernel's command line, such as cgroup_enable=memory"
	case !info.SwapLimit:
		f.Verdict, f.Seen = Warn, f.Seen+": cannot limit swap, so that memory may exceed its limit on disk"
		f.Advice = "boot with swapaccount=1, or turn swap off"
	default:
		f.Seen += ": limits memory, swap, processors and processes"
	}
	return f
}

// checkRuntimes lists the runtimes and the kinds of GPUs that a run can ask for.
func checkRuntimes(host spec.Host) Finding {
	gpus := "no way to hand out GPUs"
	switch {
	case host.GPUs.Kind != "":
		gpus = "GPUs that the engine chooses: " + host.GPUs.Kind
	case host.GPUs.NVIDIA && host.GPUs.CDI:
		gpus = "GPUs with the NVIDIA runtime and CDI"
	case host.GPUs.NVIDIA:
		gpus = "GPUs with the NVIDIA runtime"
	case host.GPUs.Any():
		gpus = "GPUs with CDI"
	}
	return Finding{Check: "runtimes", Verdict: Info,
		Seen: fmt.Sprintf("%s (default %s); %s", strings.Join(host.Runtimes, ", "), host.DefaultRuntime, gpus)}
}

// checkLeftovers looks for containers whose owner is gone.
func checkLeftovers(ctx context.Context, runner *sandbox.Runner) Finding {
	const check = "leftovers"
	report, err := runner.GC(ctx, sandbox.GCOptions{DryRun: true})
	switch n := len(report.Removed); {
	case err != nil:
		return failed(check, err)
	case n > 0:
		return Finding{Check: check, Verdict: Warn,
			Seen: text.Count(n, "container") + " whose owner is gone", Advice: "remove them with: sandbox gc"}
	}
	return Finding{Check: check, Verdict: OK, Seen: "no container without an owner"}
}

// checkImage looks for the image of a run that names none.
func (m Machine) checkImage(ctx context.Context) (Finding, spec.Spec) {
	const check = "image"
	plan, err := m.Runner.Plan(ctx, m.program("pass"))
	if err != nil {
		return failed(check, err), spec.Spec{}
	}
	image := plan.Class.Image
	f := Finding{Check: check, Verdict: OK}
	locked := "locked"
	if !image.Locked {
		f.Verdict, locked = Info, "not locked"
		if m.Cluster == nil { // a lock holds images of a Docker engine
			f.Advice = "to have runs refuse any other: sandbox image lock " + image.Reference
		}
	}
	f.Seen = fmt.Sprintf("%s %s (%s), %s; the catalog names %s", image.Reference, image.ID, image.Platform, locked, strings.Join(m.Images, ", "))
	return f, plan
}

// checkTransfer says how the files of a run reach the engine.
func checkTransfer(plan spec.Spec) Finding {
	f := Finding{Check: "files", Verdict: OK, Seen: "the engine sees the directories of this machine: they are mounted (bind)"}
	if plan.Class.Transfer == spec.TransferCopy {
		f.Verdict, f.Seen = Info, "are copied to the engine and back (copy), which takes longer"
	}
	return f
}
