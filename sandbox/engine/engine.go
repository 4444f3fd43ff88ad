// Package engine is the contract of a container engine: what a run needs of one, and
// nothing of any engine in particular. Adapters live below it; the exported suite
// in enginetest defines the contract, and every adapter passes it.
//
// A container is prepared first and gets its program afterwards: [Engine] Prepare
// returns a started container in which nothing but our own init waits
// (cmd/sandbox-init), and [Container] Start hands over one job. Therefore a pool
// of prepared containers is one more Engine that wraps another.
package engine

import (
	"context"
	"io"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Engine prepares containers and finds them again. All methods may be called
// concurrently. Every call returns when its context ends, at the latest a moment
// after. An error that means "the engine cannot be reached" satisfies errors.Is
// with [ErrUnavailable].
type Engine interface {
	// Info describes the engine and what it can enforce.
	Info(ctx context.Context) (Info, error)
	// Resolve finds an image that the engine has; it never pulls. The error of an
	// unknown image satisfies errors.Is with images.ErrNotFound.
	Resolve(ctx context.Context, catalog images.Catalog, ref string) (images.Resolved, error)
	// Prepare makes and starts a container of a class whose image is resolved. When
	// it returns, the container's init waits for a job, and no program of a user has
	// run. On an error nothing is left behind, unless the engine is unavailable: then
	// [Engine] Remove, by name, is the caller's. Calls of the engine that change
	// something are not cut short when ctx ends; what they made is removed.
	//
	// A name that is taken is [ErrNameTaken]; a host path that the engine does not have
	// is [ErrNoSource], and is never made.
	Prepare(ctx context.Context, class spec.Class, meta Meta) (Container, error)
	// Open finds a container again by what [Container] Ref returned, perhaps to another
	// process: one that runs a job, or one whose job has ended. Its output is read from
	// the engine's own bounded copy, from the beginning. A container that is not there is
	// [ErrNoContainer].
	Open(ctx context.Context, ref Ref, streams Streams) (Container, error)
	// List returns all containers that carry our label, also ended ones, and the
	// helpers of runs whose files are copied; those have [spec.LabelPart].
	List(ctx context.Context) ([]Found, error)
	// Remove ends and forgets a container by its ID or name. It is safe to call twice;
	// an unknown container is not an error.
	Remove(ctx context.Context, name string) error
	// Close waits until every removal that goes on is certain, then releases
	// connections. Runs in flight fail.
	Close() error
}

// Meta is what tells one container of a class from another.
type Meta struct {
	// Name is unique on the engine.
	Name   string
	Labels map[string]string
	// Sources are the sources of the class's binds, by role: absolute paths on the
	// engine's machine.
	Sources Sources
	// Stat are paths inside the container whose identity init has to report: see
	// [wire.Ready] Stats.
	Stat []string
	// Witness, if not empty, is a file inside the container that init opens once before
	// the container counts as prepared.
	Witness string
}

// Sources are the sources of bind mounts by their role.
type Sources map[string]string

// Container is prepared once and runs one job. All methods may be called concurrently.
type Container interface {
	// Ref names the container for [Engine] Open, also in another process.
	Ref() Ref
	// Ready is what init saw before any program existed: the truth about the container.
	Ready() wire.Ready
	// Warnings are the engine's own.
	Warnings() []string
	// Start hands the job over. Nil means that init accepted it: from then on [Container]
	// Wait tells how it ended. An error means that no program has run, unless it is
	// [ErrUnavailable]: then Wait tells whether one did. Start reads
	// streams.Stdin only if the job asks for it, until the program has ended and that
	// reader returns; it writes to the others from one goroutine, which never waits for
	// anything else. It may be called once.
	Start(ctx context.Context, job spec.Job, streams Streams) error
	// Wait returns the end of the job, after the last byte of its output was written to
	// its streams. After an [ErrUnavailable] it may be called again, to look for the
	// container once more.
	Wait(ctx context.Context) (End, error)
	// Signal asks for the end of the job. A container that has ended is not an error.
	Signal(ctx context.Context, how Signal) error
	// Disconnect breaks the connection of the streams: a stuck one can hold up the
	// engine's other calls. Nothing more is written to them when it returns, until somebody
	// waits. Wait then returns what is known.
	Disconnect()
	// Sample reads the resources of the running container. ok is false where there is
	// nothing to read.
	Sample(ctx context.Context) (usage Usage, ok bool)
	// Release lets init go: the container ends, and stays for whoever looks at it. Only a
	// container that is to be kept needs it.
	Release()
	// Remove ends and forgets the container and everything it wrote. It returns once the
	// removal is certain, also if this process dies; [Engine] Close waits for the rest.
	// It is idempotent, and may be called after a failed Start.
	Remove(ctx context.Context) error
}

// Ref names a container of an engine.
type Ref struct {
	// ID is the engine's.
	ID string `json:"id"`
	// Nonce is the end mark of the job, in hexadecimal digits; empty before Start.
	Nonce string `json:"nonce"`
}

// Streams are where a job's streams lead. Writers that fail are not written to any more;
// the program does not notice.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Signal is how a job is asked to end.
type Signal int

const (
	// Stop sends SIGTERM to the main process, and SIGKILL to every process once the
	// job's grace period is over.
	Stop Signal = iota
	// Kill sends SIGKILL to every process at once.
	Kill
	// Abort ends the container itself, init too: for one that does not answer.
	Abort
)

// Cause is what ended a job, as far as its container knows.
type Cause int

const (
	// ByItself means that the main process ended unasked.
	ByItself Cause = iota
	// ByDeadline means that the job's time limit struck.
	ByDeadline
	// BySignal means that somebody asked from outside, we or others.
	BySignal
)

// End is all that decides about a result. No text of an engine is in it.
type End struct {
	// Reported says that init reported: everything below is exact. Without a report the
	// container ended before its init could say anything, and only ExitCode (the
	// container's), OOMKilled, Foreign and the times are known.
	Reported bool
	// Launch is why the program was not executed; nil if it was.
	Launch *LaunchError
	// ExitCode is the program's; Signal, if not 0, is what killed it.
	ExitCode, Signal int
	Cause            Cause
	// Escalated says that every process was killed, since the main one outlived its
	// grace period.
	Escalated bool
	// ProcessesLeft is the number of processes that could not be killed.
	ProcessesLeft int
	// Complete says that the output was read to both end marks.
	Complete bool
	// Interrupted says that the engine was away for a while.
	Interrupted bool
	// StartedAt and FinishedAt are by the clock of the engine's machine; Duration is by
	// a monotonic one, or without a report the time between the two.
	StartedAt, FinishedAt time.Time
	Duration              time.Duration
	Usage                 Usage
	// OOMKilled is the engine's or the kernel's evidence that a process was killed for
	// memory.
	OOMKilled bool
	// Foreign are signals that others sent through the engine; ForeignErr is why it
	// cannot be told.
	Foreign    []string
	ForeignErr error
}

// Usage is what a job used. CPU and peak memory only ever grow during a run.
type Usage struct {
	CPU        time.Duration
	PeakMemory int64
	OOMKills   int64
	// Source says where the figures come from; empty when there are none.
	Source string
}

// Found is one container of ours, as found by its labels.
type Found struct {
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

// Info describes an engine.
type Info struct {
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
	// Exposed says what is missing on the way to an engine of another machine. It is a
	// warning of every result.
	Exposed string
	// Local says that the engine's process can be seen from here: it is on this machine,
	// and so are its containers' processes. It says nothing of files.
	Local bool
	// Seccomp says that the engine can apply seccomp profiles; MemoryLimit, SwapLimit,
	// CPUQuota and PIDsLimit say which limits it can enforce.
	Seccomp, MemoryLimit, SwapLimit, CPUQuota, PIDsLimit bool
	// Missing lists what every run needs and the engine cannot enforce.
	Missing []string
	// Containerd and Runc are the versions of the parts.
	Containerd, Runc string
	// Warnings are the engine's own.
	Warnings []string
	Host     spec.Host
}

// Optional upgrades, found by type assertion.
type (
	// Networks is an engine that refuses a network that it does not have, which
	// otherwise only the start of a container tells. The refusal is a
	// [*policy.FieldError].
	Networks interface {
		FindNetwork(ctx context.Context, name string) error
	}
	// Identified is an engine with an identity that changes when its process does. The
	// empty string means that it cannot be told.
	Identified interface {
		Identity(ctx context.Context) string
		// Recall tells the engine what its Info said before, perhaps to another process
		// while the identity was the same.
		Recall(info Info)
	}
	// Local is a container whose init can be seen from here, as a process of this
	// machine; 0 when it cannot.
	Local interface {
		PID(ctx context.Context) (int, error)
	}
)
