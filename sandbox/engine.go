package sandbox

import (
	"context"
	"io"
	"time"

	"github.com/evalbox/evalbox/images"
)

// Engine carries a Spec out. A run calls it in this order: Info, ResolveImage,
// Create, Attach, Wait, Start, then Signal and Usage while the program runs,
// then Inspect and Remove.
//
// All methods may be called concurrently, for the same container too. Every call
// returns when its context ends, at the latest a moment after. Errors that mean
// "the engine cannot be reached" satisfy errors.Is with [ErrEngineUnavailable].
type Engine interface {
	// Info describes the engine and what it can enforce.
	Info(ctx context.Context) (EngineInfo, error)
	// ResolveImage finds an image that the engine has; it never pulls. The
	// error of an unknown image satisfies errors.Is with images.ErrNotFound.
	ResolveImage(ctx context.Context, catalog images.Catalog, ref string) (images.Resolved, error)
	// Create makes the container of a Spec whose image is resolved, with the
	// given host folders and labels, and starts nothing. A name that is taken
	// is an error that satisfies errors.Is with [ErrNameTaken]; a missing host path is an error, never created.
	Create(ctx context.Context, spec Spec, mounts HostPaths, labels map[string]string) (id string, warnings []string, err error)
	// Attach connects to the program's streams. It must be called before
	// Start, and the caller must call Copy until it returns: a client that
	// stops reading wedges its container.
	Attach(ctx context.Context, id string, stdin bool) (Streams, error)
	// Wait reports the next end of the container, once, on a channel of
	// capacity 1. It must be called before Start; it does not return by
	// itself when Start fails, so the caller then cancels ctx.
	Wait(ctx context.Context, id string) <-chan Exit
	// Start starts the program.
	Start(ctx context.Context, id string) error
	// Signal sends a signal ("SIGTERM", "SIGKILL") to the container's main
	// process; SIGKILL ends every process. A container that has ended is not
	// an error.
	Signal(ctx context.Context, id, signal string) error
	// Inspect reports the state of a container; one that is not there is an
	// error that satisfies errors.Is with [ErrNoContainer].
	Inspect(ctx context.Context, id string) (State, error)
	// Interference lists signals that somebody sent to the container through
	// the engine since the given time, ours included.
	Interference(ctx context.Context, id string, since time.Time) ([]string, error)
	// Usage returns a sampler of the resources of a running container.
	Usage(ctx context.Context, info EngineInfo, id string) UsageSampler
	// Remove ends and forgets the container and everything it wrote. It is
	// safe to call twice and after a failed Start; an unknown container is
	// not an error.
	Remove(ctx context.Context, id string) error
	// List returns all containers that carry our label, also ended ones, and the
	// helpers of runs whose files are copied; those have [LabelPart].
	List(ctx context.Context) ([]Container, error)
	// Courier is what a run needs whose files are copied.
	Courier
	// Close releases connections. Runs in flight fail.
	Close() error
}

// Streams are the attached streams of one container.
type Streams interface {
	// Copy splits the streams into stdout and stderr until both end. It
	// returns nil at the end of the streams, and an error when the connection
	// broke before. It must be called exactly once.
	Copy(stdout, stderr io.Writer) error
	// Stdin is the program's stdin; it is nil unless asked for. Closing it is
	// the end of input for the program.
	Stdin() io.WriteCloser
	// Close breaks the connection. It is safe to call twice.
	Close() error
}

// HostPaths are the sources of the bind mounts, by role. They are absolute paths
// on the engine's machine.
type HostPaths map[string]string

// Exit is the end of a container, or why it could not be told.
type Exit struct {
	Code int
	Err  error
}

// State is what the engine knows of a container.
type State struct {
	Running   bool
	ExitCode  int
	OOMKilled bool
	// Error is the engine's text when the start failed.
	Error string
	// StartedAt and FinishedAt are zero when it never started or ended.
	StartedAt, FinishedAt time.Time
	// PID is the main process on the engine's machine; 0 when not running.
	PID int
	// TTY tells that the streams are not multiplexed; it is never so in a
	// container of ours.
	TTY bool
}

// EngineInfo describes an engine.
type EngineInfo struct {
	Name, Version, APIVersion string
	// ID identifies the engine's installation.
	ID string
	// OS, Kernel and Architecture are those of the engine's machine.
	OS, Kernel, Architecture string
	StorageDriver, RootDir   string
	CgroupDriver             string
	Rootless                 bool
	// Address is how the engine is reached: unix://…, tcp://… or ssh://….
	Address string
	// Exposed says what is missing on the way to an engine of another machine,
	// as [Endpoint.Warning] does. It is a warning of every result.
	Exposed string
	// Local says that the engine's process can be seen from here: it is on this
	// machine, and its containers' processes and cgroups are there to be looked
	// at. It says nothing of files: see [Courier].
	Local bool
	// Seccomp says that the engine can apply seccomp profiles.
	Seccomp bool
	// MemoryLimit, SwapLimit, CPUQuota and PIDsLimit say what the engine can
	// enforce.
	MemoryLimit, SwapLimit, CPUQuota, PIDsLimit bool
	// Swap says that the engine's machine has swap, or that it cannot be told.
	// Without any, a missing SwapLimit does not matter.
	Swap bool
	// Containerd and Runc are the versions of the parts.
	Containerd, Runc string
	// Warnings are the engine's own.
	Warnings []string
	Host     Host
}

// UsageSampler reads the resources of one container while it runs.
type UsageSampler interface {
	// Sample reads once. ok is false when there is nothing (any more) to read;
	// the last good sample then stands.
	Sample(ctx context.Context) (usage Usage, ok bool)
	// AtEnd waits until the main process has ended and reads the counters
	// before the engine removes them. ok is false, at once, where that cannot
	// be watched, and when ctx ends.
	AtEnd(ctx context.Context) (usage Usage, ok bool)
	// Source says where the figures come from.
	Source() string
}

// Usage is one sample. CPU and peak memory only ever grow during a run.
type Usage struct {
	CPU        time.Duration
	PeakMemory int64
	OOMKills   int64
}

// Container is one container of ours, as found by its labels.
type Container struct {
	ID, Name, Image string
	Labels          map[string]string
	Running         bool
	// Ended says that it has run and does not any more. One that neither runs nor
	// has ended may be about to start.
	Ended bool
	// Status is the engine's text, such as "Up 3 minutes".
	Status    string
	CreatedAt time.Time
}
