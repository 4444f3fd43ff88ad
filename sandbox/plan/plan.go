// Package plan turns a request, its mount table, the policy and a description of the engine's
// machine into the plan of a run. It does no I/O.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stop"
)

// Plan turns a request and its mount table into a complete Spec, within the policy and the
// capacity of the engine's machine. The zero Host switches off the checks of the machine.
// Plan does no I/O and is deterministic: the same arguments give the same Spec. The error
// joins a [*policy.FieldError] for every broken rule.
//
// A program may do nothing unless the request names it and the policy permits it.
func Plan(req spec.Request, layout spec.Layout, pol policy.Policy, host spec.Host) (spec.Spec, error) {
	limits, limitsErr := pol.Apply(fitRequest(req, pol, host))
	errs := []error{limitsErr}
	errs = append(errs, checkRequest(req, pol, host)...)
	errs = append(errs, checkOverlap(layout))
	errs = append(errs, policy.CheckEnv(req.Env)...)
	errs = append(errs, checkClockEnv(req)...)
	secrets, secretErrs := planSecrets(req)
	errs = append(errs, secretErrs...)

	user, hostUser, err := planUser(req.User, pol, host)
	errs = append(errs, err)
	gpus, err := planGPUs(req, host)
	errs = append(errs, err)
	command, binds, preload, err := planProgram(req, layout)
	errs = append(errs, err)
	mounts, err := planMounts(layout)
	errs = append(errs, err, checkClaim(layout, host))
	aliases, err := planAliases(req, layout)
	errs = append(errs, err)
	workDir, err := planWorkDir(req, layout, mounts.masks)
	errs = append(errs, err)
	ulimits, err := planUlimits(req.Ulimits, limits, pol, host)
	errs = append(errs, err)
	softSignal, err := planSoftSignal(req.SoftSignal, limits.SoftTimeout)
	errs = append(errs, err)
	errs = append(errs, checkStopRules(req.StopWhen)...)
	transfer, err := planTransfer(req.Transfer)
	errs = append(errs, err)
	diskBound, err := planDisk(transfer, pol, host)
	errs = append(errs, err)
	egress, err := planEgress(req, pol)
	errs = append(errs, err)
	observed, err := planObserve(req, layout, host, mounts.masks)
	errs = append(errs, err)
	if limitsErr == nil {
		errs = append(errs, checkHost(req, limits, host))
	}
	if err := policy.Join(errs...); err != nil {
		return spec.Spec{}, err
	}

	plan := spec.Spec{
		Schema: spec.SchemaV1,
		Class: spec.Class{
			Image:           spec.Image{Reference: req.Image},
			Runtime:         req.Runtime,
			User:            user,
			HostUser:        hostUser,
			WorkDir:         workDir,
			Network:         cmp.Or(req.Network, "none"),
			ReadOnlyRoot:    true,
			NoNewPrivileges: true,
			CapDrop:         []string{"ALL"},
			Seccomp:         planSeccomp(host),
			IPC:             "private",
			Cgroup: spec.Cgroup{
				Version:     host.CgroupVersion,
				MemoryBytes: int64(limits.Memory),
				NanoCPUs:    int64(math.Round(limits.CPUs * 1e9)),
				PIDs:        limits.PIDs,
				ShmBytes:    int64(limits.Shm),
			},
			Ulimits: ulimits,
			Tmpfs: append([]spec.Tmpfs{
				{Target: spec.TmpDir, SizeBytes: int64(limits.Tmp), Inodes: tmpfsInodes},
				{Target: spec.WorkDir, SizeBytes: int64(limits.Scratch), Inodes: tmpfsInodes},
			}, aliases.dirs...),
			Binds:    slices.Concat(binds, mounts.binds, aliases.binds),
			Masks:    mounts.masks,
			Env:      baseEnv(limits.CPUs, gpus),
			Log:      spec.BoundedLog(),
			GPUs:     gpus,
			Transfer: transfer, Preload: preload, Unenforced: slices.Clone(host.Unenforced),
		},
		Job: spec.Job{
			RunID: req.ID, Name: req.Name, Labels: maps.Clone(req.Labels),
			Command: command, Env: spec.SortedEnv(clockEnv(req.FakeClock, limits.Timeout, req.Env)), NoDeadlineEnv: req.NoDeadline || req.FakeClock != nil, Secrets: secrets,
			Script: layout.Script, ScriptFrom: req.ScriptFrom, Input: layout.Input(), Final: layout.Final,
			Mounts: mounts.hosts, Trees: mounts.trees, Aliases: aliases.links,
			Stdin: req.Stdin, NoFork: req.NoFork, Keep: req.Keep,
			SoftTimeoutSeconds: limits.SoftTimeout.Seconds(), SoftSignal: softSignal, StopWhen: slices.Clone(req.StopWhen),
			TimeoutSeconds: limits.Timeout.Seconds(), GraceSeconds: limits.Grace.Seconds(), OrphanLimitSeconds: pol.OrphanTimeout.Seconds(),
			DiskBound: diskBound, FileSize: planFileSize(req.Ulimits, limits.Disk),
			DiskBytes: int64(limits.Disk), OutputLimitBytes: int64(limits.Output), StreamFileBytes: int64(limits.StreamFile),
			CaptureStdoutBytes: int64(limits.CaptureStdout), CaptureStderrBytes: int64(limits.CaptureStderr),
			OutputFiles: limits.OutputFiles, OutputDepth: limits.OutputDepth, OutputFileBytes: int64(limits.OutputFile), OutputTotalBytes: int64(limits.OutputTotal),
		},
	}
	openTo(&plan, egress)
	observe(&plan, observed)
	return plan, checkIsolation(req, pol, plan.Class, host)
}

// maxStopRules bounds the stop rules of a run.
const maxStopRules = 16

// checkStopRules reports the stop rules that cannot be read.
func checkStopRules(rules []string) (errs []error) {
	if n := len(rules); n > maxStopRules {
		return []error{&policy.FieldError{Field: "stop_when", Value: fmt.Sprintf("%d rules", n), Rule: fmt.Sprintf("must be at most %d", maxStopRules)}}
	}
	for _, rule := range rules {
		if _, err := stop.Parse(rule); err != nil {
			errs = append(errs, &policy.FieldError{Field: "stop_when", Value: fmt.Sprintf("%.200q", rule), Rule: err.Error()})
		}
	}
	return errs
}

func planSoftSignal(name string, soft time.Duration) (string, error) {
	name = cmp.Or(name, "SIGTERM")
	if _, known := spec.SoftSignals[name]; !known {
		return "", &policy.FieldError{Field: "soft_signal", Value: fmt.Sprintf("%q", name),
			Rule: "is not one of " + strings.Join(slices.Sorted(maps.Keys(spec.SoftSignals)), ", ")}
	}
	if soft == 0 {
		return "", nil
	}
	return name, nil
}

// tmpfsInodes bounds the number of files in each tmpfs: the size of a tmpfs does not include
// its inodes, which are kernel memory.
const tmpfsInodes = 125_000

// gvisorPIDs is the lowest process limit that gVisor works with. The limit also counts its
// own threads, and a run that hits it dies without a message.
const gvisorPIDs = 4096

// fitRequest adjusts default limits, never requested ones, to the host and the runtime: a
// default must not make every run fail on a small machine.
func fitRequest(req spec.Request, pol policy.Policy, host spec.Host) policy.Limits {
	asked := req.Limits
	if asked.PIDs == 0 && pol.Defaults.PIDs == 0 && spec.OwnKernel(cmp.Or(req.Runtime, host.DefaultRuntime)) {
		asked.PIDs = gvisorPIDs
	}
	if asked.CPUs == 0 && host.CPUs > 0 {
		fallback := pol.Defaults.CPUs
		if fallback == 0 {
			fallback = policy.Default().CPUs
		}
		asked.CPUs = min(fallback, float64(host.CPUs))
	}
	return asked
}

// checkHost refuses limits that the engine's machine cannot have.
func checkHost(req spec.Request, limits policy.Limits, host spec.Host) error {
	var errs []error
	if n := host.CPUs; n > 0 && limits.CPUs > float64(n) {
		errs = append(errs, &policy.FieldError{Field: "cpus", Value: fmt.Sprint(limits.CPUs),
			Rule: fmt.Sprintf("the engine's machine has %d", n)})
	}
	if n := host.MemoryBytes; n > 0 && int64(limits.Memory) > n {
		errs = append(errs, &policy.FieldError{Field: "memory", Value: limits.Memory.String(),
			Rule: "the engine's machine has " + policy.Size(n).Rounded()})
	}
	if known := host.Runtimes; len(known) > 0 && req.Runtime != "" && !slices.Contains(known, req.Runtime) {
		errs = append(errs, &policy.FieldError{Field: "runtime", Value: req.Runtime,
			Rule: "the engine does not know it; it knows " + strings.Join(known, ", ")})
	}
	return errors.Join(errs...)
}

// checkRequest checks the rules that concern one field each.
func checkRequest(req spec.Request, pol policy.Policy, host spec.Host) []error {
	var errs []error
	if req.ID != "" {
		errs = append(errs, policy.CheckName("id", req.ID))
	}
	if req.Name != "" {
		errs = append(errs, policy.CheckName("name", req.Name))
	}
	if runtime := cmp.Or(req.Runtime, host.DefaultRuntime); req.NoFork && spec.OwnKernel(runtime) {
		errs = append(errs, &policy.FieldError{Field: "no-fork", Rule: "is not enforced by the runtime " + runtime})
	}
	errs = append(errs, checkLabels(req.Labels)...)
	errs = append(errs, checkNetwork(req.Network, pol), checkUnenforced(req, pol, host))
	return errs
}

func checkLabels(labels map[string]string) []error {
	var errs []error
	for key, value := range labels {
		switch {
		case key == "" || len(key) > 256 || len(value) > 4096:
			errs = append(errs, &policy.FieldError{Field: "label", Value: fmt.Sprintf("%.80q", key),
				Rule: "must have a key of 1 to 256 bytes and a value of at most 4096"})
		case strings.HasPrefix(key, "org.evalbox."):
			errs = append(errs, &policy.FieldError{Field: "label", Value: fmt.Sprintf("%q", key),
				Rule: "the prefix org.evalbox. is ours"})
		}
	}
	return errs
}

func checkNetwork(network string, pol policy.Policy) error {
	refuse := func(rule string) *policy.FieldError {
		return &policy.FieldError{Field: "network", Value: fmt.Sprintf("%q", network), Rule: rule}
	}
	switch {
	case network == "" || network == "none":
		return nil
	case network == "host" || strings.HasPrefix(network, "container:"):
		return refuse("shares a network namespace; a sandbox has its own")
	case strings.HasPrefix(network, "-") || strings.ContainsAny(network, " \t\n/"):
		return refuse("is not the name of a network")
	case !pol.AllowNetwork:
		refused := refuse("the policy allows none")
		refused.Hint = "permit networks with SANDBOX_ALLOW_NETWORK=true or in the user's configuration"
		return refused
	}
	return nil
}

// checkClaim refuses a volume of a cluster where there is none.
func checkClaim(layout spec.Layout, host spec.Host) error {
	if layout.Claim == nil || host.Claims {
		return nil
	}
	return &policy.FieldError{Field: "input", Value: fmt.Sprintf("%q", layout.Claim.Text()), Rule: "names a volume of a Kubernetes cluster, and the engine is not one",
		Hint: "give a directory, or choose the cluster with --engine kubernetes"}
}

// checkOverlap compares host paths as text. A runner passes paths with links resolved.
func checkOverlap(layout spec.Layout) error {
	var errs []error
	refuse := func(rule string) {
		errs = append(errs, &policy.FieldError{Field: "final", Value: layout.Final, Rule: rule})
	}
	input, script, final := layout.Input(), layout.Script, layout.Final
	if input != "" && final != "" {
		if fsx.Within(final, input) {
			refuse("lies inside input " + input + ", which is read-only")
		} else if fsx.Within(input, final) {
			refuse("holds input " + input + " and is emptied for the outputs of a run")
		}
	}
	if script != "" && final != "" && fsx.Within(script, final) {
		refuse("holds the script " + script + " and is emptied for the outputs of a run")
	}
	return errors.Join(errs...)
}

// planUser returns the user in the container, and the one on the machine if that is another.
func planUser(user string, pol policy.Policy, host spec.Host) (inside, onHost string, err error) {
	if user == "" && host.RootIs != "" {
		return "0:0", host.RootIs, nil
	}
	if user == "" || user == spec.LeasedUser {
		return spec.LeasedUser, "", nil
	}
	uidText, gidText, ok := strings.Cut(user, ":")
	if !ok {
		gidText = uidText
	}
	uid, err := strconv.ParseUint(uidText, 10, 31)
	gid, err2 := strconv.ParseUint(gidText, 10, 31)
	if err := errors.Join(err, err2); err != nil {
		return "", "", &policy.FieldError{Field: "user", Value: fmt.Sprintf("%q", user),
			Rule: "must be numeric uid:gid; names are looked up in the image, which is not trusted"}
	}
	if (uid == 0 || gid == 0) && !pol.AllowRoot {
		return "", "", &policy.FieldError{Field: "user", Value: fmt.Sprintf("%q", user),
			Rule: "root inside the container is refused by the policy"}
	}
	return fmt.Sprintf("%d:%d", uid, gid), "", nil
}
