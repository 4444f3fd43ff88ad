package spec

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

// Request is one program to run. The zero value of every field except Script and Command is
// a useful default. A run does not change its Request.
type Request struct {
	// ID identifies the run and names the directory of its record. It must be unique on
	// the host; the default consists of the time and random digits.
	ID string `json:"id,omitzero"`
	// Name is a name for people; see [policy.CheckName].
	Name string `json:"name,omitzero"`
	// Labels are copied to the result, and to the container unless it has waited for its run.
	Labels map[string]string `json:"labels,omitempty"`

	// Image is a catalog name, an image reference or an image ID that the engine has;
	// the default is the catalog's default.
	Image string `json:"image,omitzero"`
	// AllowUnlocked permits an image that differs from the runner's lock (see
	// sandbox.WithLock). The result then says that the image is not locked, and warns.
	AllowUnlocked bool `json:"allow_unlocked,omitzero"`
	// Script is the host path of a program. A copy of it is mounted read-only into the working
	// directory, and run by Interpreter with Args.
	Script string `json:"script,omitzero"`
	// ScriptFrom is the path under which people know the script, if Script is a copy that is deleted
	// after the run. It is shown, and not read.
	ScriptFrom string `json:"script_from,omitzero"`
	// Interpreter is the command of the image that runs Script, with its flags; the default is
	// python3.
	Interpreter []string `json:"interpreter,omitempty"`
	// Command is a command of the image, instead of Script. Its first word is looked up
	// in the image's PATH. No shell is involved.
	Command []string `json:"command,omitempty"`
	// Args are the arguments of Script, or further words of Command.
	Args []string `json:"args,omitempty"`

	// Input is a host directory that is mounted read-only as ./input, or a [Claim] as text:
	// pvc://NAME/PATH. Without one, ./input is empty.
	Input string `json:"input,omitzero"`
	// Final is the host directory that gets what the program left in ./final, once it has ended.
	// It is created if it is missing. What it held is then deleted if it is the outputs of an
	// earlier run, and else moved aside. Without one, the outputs stay in the record.
	Final string `json:"final,omitzero"`
	// Stdin says that the program reads the stdin of the run. Runner.Run sets it.
	Stdin bool `json:"stdin,omitzero"`
	// Env is added to the fixed environment of every run. [policy.CheckEnv] refuses some
	// names.
	Env map[string]string `json:"env,omitempty"`
	// NoDeadline leaves [DeadlineEnv] out of the environment of the program, for a program
	// whose environment must be the same in every run.
	NoDeadline bool `json:"no_deadline,omitzero"`
	// Secrets are variables whose values are in no plan, record or log.
	Secrets []Secret `json:"secrets,omitempty"`
	// FakeClock, if not nil, replaces the clock that the program sees.
	FakeClock *FakeClock `json:"fake_clock,omitzero"`

	// User is the numeric "uid:gid" in the container. The default is the caller's own. If
	// the caller is root, it is an ID that no other run has, see [LeasedUser].
	User string `json:"user,omitzero"`
	// Limits bound the run; zero fields are the policy's defaults.
	Limits policy.Limits `json:"limits,omitzero"`
	// SoftSignal is the signal of [policy.Limits].SoftTimeout, a key of [SoftSignals]; the
	// default is SIGTERM.
	SoftSignal string `json:"soft_signal,omitzero"`
	// Network is a network of the engine; the default is "none".
	Network string `json:"network,omitzero"`
	// Runtime is an OCI runtime that the engine knows, such as "runsc"; the default is
	// the engine's.
	Runtime string `json:"runtime,omitzero"`
	// GPUs is "", "all", a number of GPUs, device IDs separated by commas ("0,1"), or one
	// device ID after "device=".
	GPUs string `json:"gpus,omitzero"`
	// GPUDriver is the engine's mechanism for GPUs: "nvidia" (the runtime of NVIDIA's
	// container toolkit), "cdi" (Container Device Interface), or "auto" and "": CDI if
	// the engine lists such devices.
	GPUDriver string `json:"gpu_driver,omitzero"`
	// GPUShare permits other runs that share to use the same GPUs. Without it a GPU
	// belongs to one run at a time.
	GPUShare bool `json:"gpu_share,omitzero"`
	// GPUWait is how long to wait for GPUs that are not free, in the order of arrival; 0
	// refuses the run at once. The time limit does not include it.
	GPUWait time.Duration `json:"-"`
	// Ulimits are further resource limits of every process.
	Ulimits []Ulimit `json:"ulimits,omitempty"`

	// WorkDir is the directory in the container in which the program starts: [WorkDir]
	// (the default), the input, ./final, or a directory of a mount or tree.
	WorkDir string `json:"work_dir,omitzero"`
	// Mounts are further files and directories of the host, mounted read-only.
	Mounts []Mount `json:"mounts,omitempty"`
	// Aliases are further names of ./input, ./final and files in them, for a program that
	// expects its files elsewhere. At most [MaxAliases].
	Aliases []Alias `json:"aliases,omitempty"`
	// Trees are directories that the program may change. It gets a copy of each, and the
	// result lists the changes.
	Trees []Tree `json:"trees,omitempty"`
	// Masks are absolute paths in the container that look empty, although a mount, a tree
	// or the input shows them. Links are followed, and further names of the same file
	// are hidden as well. Masked files of a tree are not copied. A plan that is made
	// without a look at the disk takes a path that ends with a slash for a directory,
	// and any other for a file.
	Masks []string `json:"masks,omitempty"`
	// NoFork forbids the program to start processes. Threads still work, and the program
	// may still execute another one in its place (execve).
	NoFork bool `json:"no_fork,omitzero"`
	// Preload are Python modules that the interpreter of the program has imported before it
	// starts, so that the program does not wait for their import. It works for a program
	// that CPython 3.10 to 3.13 runs (a script, -c or -m); any other starts as without it, and the
	// result says why. A module is imported before the program exists: what it prints is
	// discarded, and it sees no secret and no [DeadlineEnv].
	Preload []string `json:"preload,omitempty"`
	// Egress permits hosts through a proxy of the run; nil means offline. The container
	// has no network at any level.
	Egress *policy.Egress `json:"egress,omitzero"`
	// Observe asks for observation of attempts that the sandbox prevents; nil means none.
	Observe *Observe `json:"observe,omitzero"`

	// StopWhen are rules that end the run early, in the form of stop.Parse. A rule that compares the
	// run with others needs sandbox.Hooks.Peers.
	StopWhen []string `json:"stop_when,omitempty"`

	// Transfer is how files reach the engine: [TransferBind], [TransferCopy], or
	// [TransferAuto] (the default), which detects the right one.
	Transfer string `json:"transfer,omitzero"`
	// Isolation is the lowest grade of isolation that the run may get; empty is any that the
	// policy permits. A run that would get less is refused before anything is created.
	Isolation policy.IsolationGrade `json:"isolation,omitzero"`
	// Keep leaves the container behind for inspection.
	Keep bool `json:"keep,omitzero"`
}

// Mount is a file or directory of the host that a program reads at Target, an absolute path
// in the container: [RepoDir], or a path in it, in [HostDir], or in [WorkDir] except ./final
// and the program. A mount may lie in another mount, in a tree or in the input, at a path
// where the host has an entry of the same kind.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Alias is a symbolic link that exists when the program starts. Target is "input", "final" or a
// path below one of them; it need not exist. Name is a path in the working directory
// (submission.csv), or an absolute path (/kaggle/input). The directory of an absolute name then
// has nothing but aliases, and a program cannot create files in it; its target may also be ".",
// the working directory. An absolute name of the whole input is a mount and not a link, unless the
// input is a volume, or something is mounted or hidden in it.
//
// A program that replaces the link, such as by os.replace, no longer writes to the target.
type Alias struct {
	Name   string `json:"name"`
	Target string `json:"target"`
}

// MaxAliases bounds the aliases of a run.
const MaxAliases = 512

// Tree is a directory that a program may change, at Target, an absolute path in the
// container. It starts as a copy of the host directory Source, or empty if Source is empty.
// Directories and regular files are copied with their modes, and links as links; several
// names of one file become separate files. All trees together are limited as ./final is: see
// [policy.Limits].Disk. Exclude lists paths below Source that are not copied. The run does
// not change the host's directory; tree.Apply does afterwards.
type Tree struct {
	Source  string   `json:"source,omitzero"`
	Target  string   `json:"target"`
	Exclude []string `json:"exclude,omitempty"`
}

// FakeClock is a clock that starts at a fixed time when the container starts (DT-01). It
// affects programs that use the dynamic loader.
type FakeClock struct {
	// Library is the path of libfaketime in the image. The loader ignores a missing
	// library, so the caller must check that it exists.
	Library string `json:"library"`
	// At is the time at the start, in whole seconds.
	At time.Time `json:"at"`
}

// Observe asks for observation of attempts that the sandbox prevents. The result holds the
// observations, see [github.com/evalbox/evalbox/result.Observed]. They change neither the
// status nor the fault of a run.
//
// The container's init delays an observed program until the observation has begun.
// Observation needs an engine whose processes can be seen and whose files are shared
// (Linux, the engine on the same machine, a runtime that uses the machine's own kernel).
// Otherwise the result says why there is none.
type Observe struct {
	// Network counts attempts to send or connect to addresses without a route: all except
	// the container's own. Attempts through an IPv4 socket that is bound to the loopback
	// device do not count. A lookup of a name that is not in /etc/hosts counts, once for
	// each query of the resolver.
	Network bool `json:"network,omitempty"`
	// Canaries are absolute paths in the container, or begin with "~/" for the HOME of
	// the program. A readable file or directory is made there, and the result says
	// whether it was opened. A path that ends with a slash, or whose name is usually
	// that of a directory (.ssh), becomes a directory with the names of keys in it. A
	// canary in a mount, a tree or the input hides the file there by all its names, as
	// a mask does (its further names are watched if Masks is set); if the path does not
	// exist, the canary is left out. Canaries below /root, which only root may enter,
	// lie in a /root of their own that every user may enter.
	Canaries []string `json:"canaries,omitempty"`
	// Masks also watches the masks of the request: the caller's, and those that hide
	// sockets and FIFOs of the host. A masked directory of a tree then does not look
	// empty: it shows the names of the hidden entries (at most 1000 in a run, at most 8
	// directories deep), with canaries in place of the files.
	Masks bool `json:"masks,omitempty"`
	// Required makes a run fail before its program starts if a requested observation is
	// not possible; see sandbox.ErrUnobserved.
	Required bool `json:"required,omitempty"`
}

// requestSchemaV1 names the wire form of [Request].
const requestSchemaV1 = "evalbox/request/v1"

// requestWire is the wire form of a Request, with times in seconds.
type requestWire struct {
	Schema         string  `json:"schema"`
	GPUWaitSeconds float64 `json:"gpu_wait_seconds,omitzero"`
	*requestFields
}

type requestFields Request

// MarshalJSON writes the wire form, evalbox/request/v1. Zero fields are left out.
func (r Request) MarshalJSON() ([]byte, error) {
	return json.Marshal(requestWire{requestSchemaV1, r.GPUWait.Seconds(), (*requestFields)(&r)})
}

// UnmarshalJSON reads the wire form. It refuses another schema and unknown fields.
func (r *Request) UnmarshalJSON(text []byte) error {
	wire := requestWire{requestFields: (*requestFields)(r)}
	if err := strict.JSON(text, &wire); err != nil {
		return err
	}
	r.GPUWait = policy.Seconds(wire.GPUWaitSeconds)
	if wire.Schema != requestSchemaV1 {
		return fmt.Errorf("request: schema is %q, not %q", wire.Schema, requestSchemaV1)
	}
	return nil
}

// Host describes the engine's machine as far as a plan needs it. Zero values mean
// "unknown".
type Host struct {
	// CPUs and MemoryBytes are as reported by the engine.
	CPUs        int
	MemoryBytes int64
	// CgroupVersion is 1 or 2.
	CgroupVersion int
	// NoFile is the highest number of open files that the engine can grant.
	NoFile int64
	// DefaultRuntime and Runtimes are the engine's OCI runtimes.
	DefaultRuntime string
	Runtimes       []string
	// Seccomp says that system call filters can be applied; UserNamespace that containers
	// have a user namespace; LSM that a security module confines them.
	Seccomp, UserNamespace, LSM bool
	// RootIs, if not empty, is the unprivileged user that root of a container is on the
	// machine: the caller, with a rootless engine of the caller. A request without a user then
	// gets root.
	RootIs string
	// OwnUIDs says that a leased user ID belongs to one run: all controllers that use the
	// engine's kernel lease from one place.
	OwnUIDs bool
	// GPUs says how the engine can hand out GPUs.
	GPUs HostGPUs
	// NoLoop says why a run cannot have a file system of its own in a file; empty if no reason is
	// known.
	NoLoop string
	// Unenforced lists the limits that the engine cannot enforce, such as [LimitPIDs].
	Unenforced []string
	// Filter names the system call filter of an engine with [LimitSeccomp].
	Filter string
	// Unseen says why programs of the engine cannot be observed from here; empty if no
	// reason is known.
	Unseen string
	// Claims says that a [Claim] can be the input.
	Claims bool
}

// Limits that an engine may be unable to enforce; see [Host] and [Class].
const (
	LimitSwap = "swap"
	// LimitPIDs is the number of processes, and LimitInodes that of files in memory.
	LimitPIDs   = "pids"
	LimitInodes = "inodes"
	// LimitSeccomp is the exact system call filter: another one is in its place.
	LimitSeccomp = "seccomp"
	// LimitInterfaces is the network: the container has interfaces, and a rule of the engine lets
	// nothing through them.
	LimitInterfaces = "interfaces"
	// LimitNetwork is the network as a whole: the operator permits that something gets through.
	LimitNetwork = "network"
)

// OwnKernel reports whether containers of an OCI runtime have their own kernel: gVisor's
// runsc, also under a longer name. The limits, counters, device numbers and inode numbers
// that this kernel shows are not those of the machine.
func OwnKernel(runtime string) bool { return strings.HasPrefix(runtime, "runsc") }

// HostGPUs says how an engine can provide GPUs. The zero value means "not at all".
type HostGPUs struct {
	// NVIDIA says that the engine has the NVIDIA runtime.
	NVIDIA bool
	// CDI says that the engine can provide CDI devices (API 1.44).
	CDI bool
	// CDIDevices are the NVIDIA devices that the engine has found; nil if it does not
	// report them (before API 1.50).
	CDIDevices []string
	// Driver and Kind, unless empty, are those of an engine that chooses the GPUs itself:
	// [DriverLimits] with the name of a resource, or [DriverClaim] with that of a device class.
	Driver, Kind string
}

// Any reports whether the engine can provide a GPU.
func (h HostGPUs) Any() bool {
	return h.Kind != "" || h.NVIDIA || h.CDI && (h.CDIDevices == nil || len(h.CDIDevices) > 0)
}
