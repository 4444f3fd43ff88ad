package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Plan turns a request and a policy into a complete Spec. It does no I/O and is
// deterministic: the same arguments give the same Spec. A request that breaks a
// rule gives one error that joins every broken rule as a [policy.FieldError].
//
// Everything starts denied; only what the request names and the policy permits
// is opened.
func Plan(req Request, pol policy.Policy) (spec.Spec, error) {
	limits, limitsErr := pol.Apply(fitRequest(req, pol))
	errs := []error{limitsErr}
	errs = append(errs, checkRequest(req, pol)...)
	errs = append(errs, policy.CheckEnv(req.Env)...)

	user, err := planUser(req.User, pol)
	errs = append(errs, err)
	gpus, err := planGPUs(req)
	errs = append(errs, err)
	command, binds, err := planProgram(req)
	errs = append(errs, err)
	mounts, err := planMounts(req, scriptName(req))
	errs = append(errs, err)
	workDir, err := planWorkDir(req, mounts.masks)
	errs = append(errs, err)
	ulimits, err := planUlimits(req.Ulimits, limits, pol, req.Host)
	errs = append(errs, err)
	transfer, err := planTransfer(req.Transfer)
	errs = append(errs, err)
	egress, err := planEgress(req, pol)
	errs = append(errs, err)
	observed, err := planObserve(req, mounts.masks)
	errs = append(errs, err)
	if limitsErr == nil {
		errs = append(errs, checkHost(req, limits))
	}
	if err := errors.Join(errs...); err != nil {
		return spec.Spec{}, err
	}

	plan := spec.Spec{
		Schema: spec.SchemaV1,
		Class: Class{
			Image:           Image{Reference: req.Image},
			Runtime:         req.Runtime,
			User:            user,
			WorkDir:         workDir,
			Network:         orDefault(req.Network, "none"),
			ReadOnlyRoot:    true,
			NoNewPrivileges: true,
			CapDrop:         []string{"ALL"},
			Seccomp:         spec.DefaultSeccomp(),
			IPC:             "private",
			Cgroup: Cgroup{
				Version:     req.Host.CgroupVersion,
				MemoryBytes: int64(limits.Memory),
				NanoCPUs:    int64(math.Round(limits.CPUs * 1e9)),
				PIDs:        limits.PIDs,
				ShmBytes:    int64(limits.Shm),
			},
			Ulimits: ulimits,
			Tmpfs: []Tmpfs{
				{Target: TmpDir, SizeBytes: int64(limits.Tmp), Inodes: tmpfsInodes},
				{Target: WorkDir, SizeBytes: int64(limits.Scratch), Inodes: tmpfsInodes},
			},
			Binds: append(binds, mounts.binds...),
			Masks: mounts.masks,
			Env:   baseEnv(limits.CPUs, gpus),
			Log:   spec.BoundedLog(),
			GPUs:  gpus,

			Transfer: transfer,
		},
		Job: Job{
			RunID: req.ID, Name: req.Name, Labels: maps.Clone(req.Labels),
			Command: command, Env: sortedEnv(req.FakeClock.env(req.Env)),
			Script: req.Script, Input: req.Input, Final: req.Final,
			Mounts: mounts.hosts, Trees: mounts.trees,
			Stdin: req.Stdin, NoFork: req.NoFork, Keep: req.Keep,
			TimeoutSeconds: limits.Timeout.Seconds(), GraceSeconds: limits.Grace.Seconds(),
			DiskBytes: int64(limits.Disk), OutputLimitBytes: int64(limits.Output),
			StreamFileBytes:    int64(limits.StreamFile),
			CaptureStdoutBytes: int64(limits.CaptureStdout), CaptureStderrBytes: int64(limits.CaptureStderr),
			OutputFiles: limits.OutputFiles, OutputDepth: limits.OutputDepth,
			OutputFileBytes: int64(limits.OutputFile), OutputTotalBytes: int64(limits.OutputTotal),
		},
	}
	openTo(&plan, egress)
	observe(&plan, observed)
	return plan, nil
}

// tmpfsInodes bounds the number of files in each tmpfs: inodes are kernel memory
// that the size of a tmpfs does not count.
const tmpfsInodes = 125_000

// gvisorPIDs is the least process limit that gVisor can live with: the limit
// hits its own threads, and the whole run then dies without a word.
const gvisorPIDs = 4096

// fitRequest changes default limits, never limits that were asked for, to what
// the host has and the runtime needs: a default must not make every run fail on
// a small machine.
func fitRequest(req Request, pol policy.Policy) policy.Limits {
	asked := req.Limits
	if asked.PIDs == 0 && pol.Defaults.PIDs == 0 && spec.OwnKernel(orDefault(req.Runtime, req.Host.DefaultRuntime)) {
		asked.PIDs = gvisorPIDs
	}
	if asked.CPUs == 0 && req.Host.CPUs > 0 {
		fallback := pol.Defaults.CPUs
		if fallback == 0 {
			fallback = policy.Default().CPUs
		}
		asked.CPUs = min(fallback, float64(req.Host.CPUs))
	}
	return asked
}

// checkHost refuses limits that the engine's machine cannot have.
func checkHost(req Request, limits policy.Limits) error {
	var errs []error
	if n := req.Host.CPUs; n > 0 && limits.CPUs > float64(n) {
		errs = append(errs, &policy.FieldError{Field: "cpus", Value: fmt.Sprint(limits.CPUs),
			Rule: fmt.Sprintf("the engine's machine has %d", n)})
	}
	if n := req.Host.MemoryBytes; n > 0 && int64(limits.Memory) > n {
		errs = append(errs, &policy.FieldError{Field: "memory", Value: limits.Memory.String(),
			Rule: fmt.Sprintf("the engine's machine has %v", policy.Size(n))})
	}
	if known := req.Host.Runtimes; len(known) > 0 && req.Runtime != "" && !slices.Contains(known, req.Runtime) {
		errs = append(errs, &policy.FieldError{Field: "runtime", Value: req.Runtime,
			Rule: "the engine does not know it; it knows " + strings.Join(known, ", ")})
	}
	return errors.Join(errs...)
}

// checkRequest holds the rules that concern one field each.
func checkRequest(req Request, pol policy.Policy) []error {
	var errs []error
	if req.ID != "" {
		errs = append(errs, policy.CheckName("id", req.ID))
	}
	if req.Name != "" {
		errs = append(errs, policy.CheckName("name", req.Name))
	}
	if runtime := orDefault(req.Runtime, req.Host.DefaultRuntime); req.NoFork && spec.OwnKernel(runtime) {
		errs = append(errs, &policy.FieldError{Field: "no-fork", Rule: "is not enforced by the runtime " + runtime})
	}
	errs = append(errs, checkLabels(req.Labels)...)
	errs = append(errs, checkNetwork(req.Network, pol))
	errs = append(errs, checkOverlap(req)...)
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
	refuse := func(rule string) error {
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
		return refuse("the policy allows none")
	}
	return nil
}

// checkOverlap compares host paths as text; the workspace compares them again
// with links resolved.
func checkOverlap(req Request) []error {
	var errs []error
	if req.Input != "" && req.Final != "" {
		if fsx.Within(req.Final, req.Input) {
			errs = append(errs, &policy.FieldError{Field: "final", Value: req.Final,
				Rule: "lies inside input " + req.Input + ", which is read-only"})
		} else if fsx.Within(req.Input, req.Final) {
			errs = append(errs, &policy.FieldError{Field: "final", Value: req.Final,
				Rule: "holds input " + req.Input + " and is emptied before a run"})
		}
	}
	if req.Script != "" && req.Final != "" && fsx.Within(req.Script, req.Final) {
		errs = append(errs, &policy.FieldError{Field: "final", Value: req.Final,
			Rule: "holds the script " + req.Script + " and is emptied before a run"})
	}
	return errs
}

func planUser(user string, pol policy.Policy) (string, error) {
	if user == "" {
		return DedicatedUser, nil
	}
	uidText, gidText, ok := strings.Cut(user, ":")
	if !ok {
		gidText = uidText
	}
	uid, err := strconv.ParseUint(uidText, 10, 31)
	gid, err2 := strconv.ParseUint(gidText, 10, 31)
	if err := errors.Join(err, err2); err != nil {
		return "", &policy.FieldError{Field: "user", Value: fmt.Sprintf("%q", user),
			Rule: "must be numeric uid:gid; names are looked up in the image, which is not trusted"}
	}
	if (uid == 0 || gid == 0) && !pol.AllowRoot {
		return "", &policy.FieldError{Field: "user", Value: fmt.Sprintf("%q", user),
			Rule: "root inside the container is refused by the policy"}
	}
	return fmt.Sprintf("%d:%d", uid, gid), nil
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
