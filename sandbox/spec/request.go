package spec

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

// Request is one program to run. The zero value of every field but Script and
// Command is a useful default. A Request is not changed by a run.
type Request struct {
	// ID identifies the run and names its record folder. It must be unique on
	// the host; the default is made of the time and random digits.
	ID string `json:"id,omitzero"`
	// Name is a name for people; see [policy.CheckName].
	Name string `json:"name,omitzero"`
	// Labels are copied to the result and to the container.
	Labels map[string]string `json:"labels,omitempty"`

	// Image is a catalog name, an image reference or an image ID that the
	// engine has; the default is the catalog's default.
	Image string `json:"image,omitzero"`
	// AllowUnlocked lets an image run that is not the one of the runner's lock,
	// see WithLock; the result then warns of it, and says that it is not
	// locked.
	AllowUnlocked bool `json:"allow_unlocked,omitzero"`
	// Script is the host path of a Python program. A copy of it is mounted
	// read-only into the working directory and run with python3 and Args.
	Script string `json:"script,omitzero"`
	// Command is any command of the image, instead of Script. The first word
	// is looked up in the image's PATH; no shell is involved.
	Command []string `json:"command,omitempty"`
	// Args are passed on after Script.
	Args []string `json:"args,omitempty"`

	// Input is a host folder, mounted read-only as ./input. Without one,
	// ./input is empty.
	Input string `json:"input,omitzero"`
	// Final is the host folder that is mounted writable as ./final. It is
	// created if it is missing and emptied first (EX-002). The default is a
	// folder in the run's record.
	Final string `json:"final,omitzero"`
	// Stdin says that the program reads the stdin that Runner.Run is given; Run sets it.
	Stdin bool `json:"stdin,omitzero"`
	// Env is added to the fixed environment of every run. See
	// [policy.CheckEnv] for names that are refused.
	Env map[string]string `json:"env,omitempty"`
	// FakeClock, if not nil, is a clock that the program sees instead of the real one.
	FakeClock *FakeClock `json:"fake_clock,omitzero"`

	// User is the numeric "uid:gid" inside the container. The default is the
	// caller's own, or [DedicatedUser] when the caller is root.
	User string `json:"user,omitzero"`
	// Limits bound the run; zero fields are the policy's defaults.
	Limits policy.Limits `json:"limits,omitzero"`
	// Network is a network of the engine; the default is "none".
	Network string `json:"network,omitzero"`
	// Runtime is an OCI runtime that the engine knows, such as "runsc"; the
	// default is the engine's.
	Runtime string `json:"runtime,omitzero"`
	// GPUs is "", "all", a number of GPUs, device IDs separated by commas
	// ("0,1"), or one device ID after "device=".
	GPUs string `json:"gpus,omitzero"`
	// GPUDriver is how the engine is asked for GPUs: "nvidia" (the runtime of
	// NVIDIA's container toolkit), "cdi" (Container Device Interface), or
	// "auto" and "": CDI where the engine lists such devices.
	GPUDriver string `json:"gpu_driver,omitzero"`
	// GPUShare lets other runs that share have the same GPUs. Without it a GPU
	// is one run's at a time.
	GPUShare bool `json:"gpu_share,omitzero"`
	// GPUWait is how long to wait for GPUs that are not free, in the order of
	// arrival; 0 refuses the run at once. It is no part of the time limit.
	GPUWait time.Duration `json:"-"`
	// Ulimits are further resource limits of every process.
	Ulimits []Ulimit `json:"ulimits,omitempty"`

	// WorkDir is the folder inside the container that the program starts in: the
	// default [WorkDir], the input, ./final, or a folder of a mount or tree.
	WorkDir string `json:"work_dir,omitzero"`
	// Mounts are further files and folders of the host, read-only.
	Mounts []Mount `json:"mounts,omitempty"`
	// Trees are folders that the program may change: it gets a copy of each, and
	// the result says what it changed.
	Trees []Tree `json:"trees,omitempty"`
	// Masks are absolute paths inside the container that look empty, even where a
	// mount, a tree or the input shows them, by whatever name: links are followed,
	// and further names of the same file are hidden as well. Of a tree they are not
	// even copied. A plan that is made without a look at the disk takes one that ends with a slash
	// for a folder and any other for a file.
	Masks []string `json:"masks,omitempty"`
	// NoFork forbids the program to start processes; threads still work, and it may
	// still become another program (execve).
	NoFork bool `json:"no_fork,omitzero"`
	// Egress opens hosts through a proxy of the run; nil is offline. The container
	// has no network at any level.
	Egress *policy.Egress `json:"egress,omitzero"`
	// Observe asks for what the program tries and does not get; nil is nothing.
	Observe *Observe `json:"observe,omitzero"`

	// Transfer is how files reach the engine: [TransferBind], [TransferCopy], or
	// [TransferAuto], which is the default and finds out which it must be.
	Transfer string `json:"transfer,omitzero"`
	// Keep leaves the container behind for inspection.
	Keep bool `json:"keep,omitzero"`
}

// Mount is a file or folder of the host that a program reads at Target, an absolute
// path inside the container: [RepoDir], or something in it, in [HostDir], or in
// [WorkDir] beside ./final and the program. A mount may lie in another, in a tree or
// in the input, where the host has something of its kind.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Tree is a folder that a program may change, at Target, an absolute path inside the
// container. It starts as a copy of the host folder Source, or empty if Source is
// empty. Folders and regular files are copied, with their modes, and links as links;
// several names of one file become files of their own. All trees together count as much as ./final does: see [policy.Limits].Disk. Exclude are
// paths below Source that are not copied. The host's folder does not change; see
// Store.ApplyTree.
type Tree struct {
	Source  string   `json:"source,omitzero"`
	Target  string   `json:"target"`
	Exclude []string `json:"exclude,omitempty"`
}

// FakeClock is a clock that begins at a fixed time when the container starts, and goes
// on (DT-01). It holds for programs that use the dynamic loader.
type FakeClock struct {
	// Library is the path of libfaketime inside the image. The loader goes on without
	// a library that is not there: the caller must look first.
	Library string `json:"library"`
	// At is the time at the start, in whole seconds.
	At time.Time `json:"at"`
}

// Observe asks for what a program tries although its sandbox does not let it. What was
// seen is in the result, see [github.com/evalbox/evalbox/result.Observed]; it changes
// neither the status nor the fault of a run.
//
// The container's init delays an observed program until the observation has begun.
// Observing works where the processes of the engine can be seen and its files are shared
// (Linux, the engine on the same machine, a runtime that uses the machine's own kernel).
// Where it does not, the result says why.
type Observe struct {
	// Network counts what the program sends, or connects, to addresses to which no
	// route leads: all but those of the container itself, unless the program binds a
	// socket of IPv4 to the loopback device, which nothing leaves. A look-up of a name that is
	// not in /etc/hosts counts, once for each question that the resolver sends.
	Network bool `json:"network,omitempty"`
	// Canaries are absolute paths inside the container, or begin with "~/" for the HOME
	// of the program. A readable file or directory lies there, and the result says
	// whether it was opened. A path that ends with a slash, or whose name is usually
	// that of a directory (.ssh), is a directory with the names of keys in it. A canary
	// in a mount, a tree or the input hides what is there as one of the Masks of the
	// request does, by all its names (further names of a file are watched with Masks);
	// if nothing is there, it is left out. Those below /root, which no other user may
	// enter, lie in a /root of their own that everybody may.
	Canaries []string `json:"canaries,omitempty"`
	// Masks watches the masks of the request as well: the caller's, and those that hide
	// sockets and FIFOs of the host. A folder of a tree then looks no longer empty: the
	// names of what is hidden are there (at most 1000 in a run, in folders at most 8
	// deep), with canaries in place of the files, so that opening one is seen.
	Masks bool `json:"masks,omitempty"`
	// Required makes a run fail before its program starts when something that was asked
	// for here cannot be observed; see ErrUnobserved.
	Required bool `json:"required,omitempty"`
}

// RequestSchemaV1 names the wire form of [Request].
const requestSchemaV1 = "evalbox/request/v1"

// requestWire is the wire form of a Request, with times in seconds.
type requestWire struct {
	Schema         string  `json:"schema"`
	GPUWaitSeconds float64 `json:"gpu_wait_seconds,omitzero"`
	*requestFields
}

type requestFields Request

// MarshalJSON writes the wire form, [RequestSchemaV1]. Zero fields are left out.
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
