package sandbox

import (
	"context"
	"io"
	"time"

	"github.com/evalbox/evalbox/policy"
)

// Request is one program to run. The zero value of every field but Script and
// Command is a useful default. A Request is not changed by a run.
type Request struct {
	// ID identifies the run and names its record folder. It must be unique on
	// the host; the default is made of the time and random digits.
	ID string
	// Name is a name for people; see [policy.CheckName].
	Name string
	// Labels are copied to the result and to the container.
	Labels map[string]string

	// Image is a catalog name, an image reference or an image ID that the
	// engine has; the default is the catalog's default.
	Image string
	// AllowUnlocked lets an image run that is not the one of the runner's lock,
	// see [WithLock]; the result then warns of it, and says that it is not
	// locked.
	AllowUnlocked bool
	// Script is the host path of a Python program. A copy of it is mounted
	// read-only into the working directory and run with python3 and Args.
	Script string
	// Command is any command of the image, instead of Script. The first word
	// is looked up in the image's PATH; no shell is involved.
	Command []string
	// Args are passed on after Script.
	Args []string

	// Input is a host folder, mounted read-only as ./input. Without one,
	// ./input is empty.
	Input string
	// Final is the host folder that is mounted writable as ./final. It is
	// created if it is missing and emptied first (EX-002). The default is a
	// folder in the run's record.
	Final string
	// Stdin is what the program reads; nil is an empty stdin. Run does not
	// close it, and may leave one Read of it pending when it returns.
	Stdin io.Reader
	// Env is added to the fixed environment of every run. See
	// [policy.CheckEnv] for names that are refused.
	Env map[string]string
	// FakeClock, if not nil, is a clock that the program sees instead of the real one.
	FakeClock *FakeClock

	// User is the numeric "uid:gid" inside the container. The default is the
	// caller's own, or [DedicatedUser] when the caller is root.
	User string
	// Limits bound the run; zero fields are the policy's defaults.
	Limits policy.Limits
	// Network is a network of the engine; the default is "none".
	Network string
	// Runtime is an OCI runtime that the engine knows, such as "runsc"; the
	// default is the engine's.
	Runtime string
	// GPUs is "", "all", a number of GPUs, device IDs separated by commas
	// ("0,1"), or one device ID after "device=".
	GPUs string
	// GPUDriver is how the engine is asked for GPUs: "nvidia" (the runtime of
	// NVIDIA's container toolkit), "cdi" (Container Device Interface), or
	// "auto" and "": CDI where the engine lists such devices.
	GPUDriver string
	// GPUShare lets other runs that share have the same GPUs. Without it a GPU
	// is one run's at a time.
	GPUShare bool
	// GPUWait is how long to wait for GPUs that are not free, in the order of
	// arrival; 0 refuses the run at once. It is no part of the time limit.
	GPUWait time.Duration
	// Waiting, if not nil, hears what the run waits for, before it begins to,
	// and whenever that changes.
	Waiting func(why string)
	// Started, if not nil, is called when all is ready, right before the program
	// begins. A run that is canceled earlier never calls it.
	Started func()
	// Ulimits are further resource limits of every process.
	Ulimits []Ulimit

	// WorkDir is the folder inside the container that the program starts in: the
	// default [WorkDir], the input, ./final, or a folder of a mount or tree.
	WorkDir string
	// Mounts are further files and folders of the host, read-only.
	Mounts []Mount
	// Trees are folders that the program may change: it gets a copy of each, and
	// the result says what it changed.
	Trees []Tree
	// Masks are absolute paths inside the container that look empty, even where a
	// mount, a tree or the input shows them, by whatever name: links are followed,
	// and further names of the same file are hidden as well. Of a tree they are not
	// even copied. [Plan], which looks at no disk, takes one that ends with a slash
	// for a folder and any other for a file; [Runner.Run] looks.
	Masks []string
	// NoFork forbids the program to start processes; threads still work, and it may
	// still become another program (execve).
	NoFork bool
	// Egress opens hosts through a proxy of the run; nil is offline. The container
	// has no network at any level.
	Egress *policy.Egress
	// Observe asks for what the program tries and does not get; nil is nothing.
	Observe *Observe

	// Stdout and Stderr get the program's output live, as raw bytes, while it
	// is recorded. A writer that blocks or fails never holds the program up.
	// Both are called from one goroutine.
	Stdout, Stderr io.Writer
	// Admit, if not nil, is asked when the container is ready, and the program does not
	// start before its answer. release, if not nil, is called once the program has
	// ended, before its outputs are collected. So runs can be prepared and cleaned up
	// while others run; see [Slots]. An error ends the run as ctx would before the
	// start. It may wait for as long as the time limit and the grace period: a
	// controller that cannot see this one takes a longer wait for its death.
	Admit func(ctx context.Context) (release func(), err error)
	// Kill, when closed after the context was canceled, skips the rest of the
	// grace period.
	Kill <-chan struct{}
	// Transfer is how files reach the engine: [TransferBind], [TransferCopy], or
	// [TransferAuto], which is the default and finds out which it must be.
	Transfer string
	// Keep leaves the container behind for inspection.
	Keep bool

	// missing are masks that stand for nothing that is there, by the target of the
	// tree that they lie in, relative to it.
	missing map[string][]string

	// Host is what is known of the engine's machine. [Runner.Run] fills it in;
	// callers of [Plan] may leave it zero, which switches off the checks that
	// need it.
	Host Host
}

// Mount is a file or folder of the host that a program reads at Target, an absolute
// path inside the container: [RepoDir], or something in it, in [HostDir], or in
// [WorkDir] beside ./final and the program. A mount may lie in another, in a tree or
// in the input, where the host has something of its kind.
type Mount struct{ Source, Target string }

// Tree is a folder that a program may change, at Target, an absolute path inside the
// container. It starts as a copy of the host folder Source, or empty if Source is
// empty. Folders and regular files are copied, with their modes, and links as links;
// several names of one file become files of their own. All trees
// together count as much as ./final does: see [policy.Limits].Disk. Exclude are
// paths below Source that are not copied. The host's folder does not change; see
// [record.Store.ApplyTree].
type Tree struct {
	Source, Target string
	Exclude        []string
}

const dedicatedID = 64646
