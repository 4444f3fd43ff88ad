// Package engine defines the contract of a container engine: what a run needs from an
// engine, and nothing specific to one. The adapters are in the packages below it. The
// exported suite in enginetest tests the contract, and every adapter passes it.
//
// A container is prepared first and receives its program afterwards: [Engine] Prepare
// returns a started container in which only evalbox's init (cmd/sandbox-init) is waiting,
// and [Container] Start hands over one job. A pool of prepared containers can therefore
// be another Engine that wraps the first.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Engine prepares containers and finds them again. All methods may be called
// concurrently. Every call returns when its context ends, or shortly after. An error that
// means "the engine cannot be reached" satisfies errors.Is with [ErrUnavailable].
type Engine interface {
	// Info describes the engine and the limits that it can enforce.
	Info(ctx context.Context) (Info, error)
	// Resolve finds an image that the engine has, by a reference or an ID; it never pulls.
	// The error of an unknown image satisfies errors.Is with images.ErrNotFound.
	Resolve(ctx context.Context, ref string) (images.Resolved, error)
	// Prepare creates and starts a container of a class whose image is resolved. When it
	// returns, the container's init is waiting for a job, and no user program has run. The
	// interpreter of the class's Preload is waiting as well, or has failed: then the job
	// starts without it.
	// After an error nothing is left behind, unless the engine is unavailable: then the
	// caller must call [Engine] Remove with the container's name. Engine calls that
	// change something are not cut short when ctx ends; anything they created is removed.
	//
	// If the name is taken, the error is [ErrNameTaken]. If the engine does not have a
	// host path, the error is [ErrNoSource]; the path is never created.
	Prepare(ctx context.Context, class spec.Class, meta Meta) (Container, error)
	// Open finds a container again by the result of [Container] Ref, which another
	// process may have obtained. Its job may be running or may have ended. The output is
	// read from the beginning of the engine's own bounded copy. A container that never got
	// its job can be opened as well: it is ended, and [Container] Wait reports that.
	// If the container does not exist, the error is [ErrNoContainer].
	Open(ctx context.Context, ref Ref, streams Streams) (Container, error)
	// List returns all containers that carry evalbox's label, including ended ones and
	// the helper containers of runs whose files are copied; those have [spec.LabelPart].
	List(ctx context.Context) ([]Found, error)
	// Remove kills and deletes a container by its ID or name. It is safe to call twice;
	// an unknown container is not an error.
	Remove(ctx context.Context, name string) error
	// Close waits until every pending removal is certain, then releases the connections.
	// Runs in progress fail.
	Close() error
}

// Meta distinguishes one container of a class from another.
type Meta struct {
	// Name is unique on the engine.
	Name   string
	Labels map[string]string
	// Sources maps the roles of the class's binds to their sources: absolute paths on the
	// engine's machine.
	Sources Sources
	// Stat lists paths inside the container whose identity init must report: see
	// [wire.Ready] Stats.
	Stat []string
	// Witness, if not empty, is a file inside the container. Init opens it once before
	// the container counts as prepared.
	Witness string
	// Warm, unless it is empty, is a command of the image that is run and has ended before the
	// container counts as prepared, so that its files are in memory. Its output is discarded, and
	// neither its end nor its failure has a meaning. A class with Preload needs none.
	Warm []string
}

// Sources maps the roles of bind mounts to their sources.
type Sources map[string]string

// Container is prepared once and runs one job. All methods may be called concurrently.
type Container interface {
	// Ref names the container for [Engine] Open, also in another process.
	Ref() Ref
	// Ready is what init saw before any program existed: the actual state of the
	// container.
	Ready() wire.Ready
	// Look asks init once more for what it sees, before the job: a container that has waited
	// for a while may have been stopped, paused or changed by somebody else.
	Look(ctx context.Context) (wire.Ready, error)
	// Warnings returns the engine's own warnings.
	Warnings() []string
	// Start hands the job over. Nil means that init accepted it: from then on [Container]
	// Wait reports how it ended. An error means that no program has run, unless it is
	// [ErrUnavailable]: then Wait reports whether one did. Start reads streams.Stdin only
	// if the job asks for it, until the program has ended and a pending Read has
	// returned. It writes to the other streams from one goroutine, which waits for
	// nothing else. Start may be called once.
	Start(ctx context.Context, job spec.Job, streams Streams) error
	// Wait returns the end of the job, after the last byte of its output has been written
	// to its streams. After an [ErrUnavailable] it may be called again, to look for the
	// container once more.
	Wait(ctx context.Context) (End, error)
	// Signal requests the end of the job. A container that has already ended is not an
	// error.
	Signal(ctx context.Context, how Signal) error
	// Disconnect closes the connection that carries the streams: a stuck one can block
	// the engine's other calls. After it returns, nothing more is written to the streams
	// until the next Wait. Wait then returns what is known.
	Disconnect()
	// Sample reads the resource usage of the running container. ok is false if there is
	// nothing to read.
	Sample(ctx context.Context) (usage Usage, ok bool)
	// Release lets init exit: the container ends, but is not removed. A container that is
	// removed does not need it.
	Release()
	// Remove kills and deletes the container and everything it wrote. It returns once the
	// removal is certain, even if this process dies; [Engine] Close waits for the rest.
	// It is idempotent, and may be called after a failed Start.
	Remove(ctx context.Context) error
}

// Ref identifies a container of an engine.
type Ref struct {
	// ID is the engine's ID of the container.
	ID string `json:"id"`
	// Nonce is the end mark of the job, in hexadecimal digits. It is chosen when the
	// container is prepared, so that it can be written down before the job starts.
	Nonce string `json:"nonce"`
}

// Streams are the source and destinations of a job's streams. After a writer fails,
// nothing more is written to it; the program does not notice.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Signal is a way to request the end of a job.
type Signal int

const (
	// Stop sends SIGTERM to the main process, and SIGKILL to every process after the
	// job's grace period.
	Stop Signal = iota
	// Kill sends SIGKILL to every process at once.
	Kill
	// Abort kills the container itself, including init, for an init that does not
	// respond.
	Abort
)

// Cause says what ended a job, as far as its container knows.
type Cause int

const (
	// ByItself means that the main process ended on its own.
	ByItself Cause = iota
	// ByDeadline means that the job reached its time limit.
	ByDeadline
	// BySignal means that the end was requested from outside, by evalbox or by somebody
	// else.
	BySignal
	// ByOrphanLimit means that the controller had disconnected, and that the job's orphan
	// limit was over.
	ByOrphanLimit
)

// Loss says why an engine ended a container that nobody asked it to end.
type Loss int

const (
	NotLost Loss = iota
	// EvictedForDisk means that the container wrote more to its disk than it may.
	EvictedForDisk
	// Evicted means that the machine was short of something, or that an administrator emptied it.
	Evicted
	// Preempted means that a more important container took its place.
	Preempted
	// NodeLost means that the machine of the container was lost or shut down.
	NodeLost
	// PodDeadline means that the engine's own time limit for the container was over.
	PodDeadline
)

// End holds everything that determines a result. It contains no text of an engine.
type End struct {
	// Reported says that init sent a report: everything below is exact. Without a report
	// the container ended before its init could send one, and only ExitCode (the
	// container's), OOMKilled, Foreign and the times are known.
	Reported bool
	// NoJob says that the container ended before its init had accepted a job: no program has
	// run. It is only known if the output begins with the first frame of init.
	NoJob bool
	// Launch says why the program was not executed; it is nil if it was.
	Launch *LaunchError
	// ExitCode is the program's; Signal, if not 0, is the signal that killed it.
	ExitCode, Signal int
	Cause            Cause
	// SoftAfter is how long after the start the main process got the job's soft signal; 0
	// if it did not.
	SoftAfter time.Duration
	// NotPreloaded says why the program did not run in the waiting interpreter of its class
	// ([spec.Class].Preload); empty if it did, or if the class has none.
	NotPreloaded string
	// Escalated says that every process was killed because the main one outlived its
	// grace period.
	Escalated bool
	// ProcessesLeft is the number of processes that could not be killed.
	ProcessesLeft int
	// Complete says that the output was read up to both end marks.
	Complete bool
	// Abandoned says that the controller that started the job had gone before its end.
	Abandoned bool
	// Interrupted says that the engine was temporarily unreachable. What it lacked then was read
	// from its log; Complete says whether that worked.
	Interrupted bool
	// Restarted says that somebody else restarted the container. The program does not run
	// again, because nobody hands a job to the second init.
	Restarted bool
	// StartedAt and FinishedAt are by the clock of the engine's machine, which may be stepped.
	// Duration is by a monotonic clock; without a report it is as long as the caller saw.
	StartedAt, FinishedAt time.Time
	Duration              time.Duration
	Usage                 Usage
	// Share is what the program got of the processors; zero without a report.
	Share wire.Share
	// Frozen is how long the container stood still, so that nothing in it ran. Paused says that
	// somebody froze it through the engine (docker pause), or that the engine may have forgotten it.
	Frozen time.Duration
	Paused bool
	// Left is what the program left in its working directory; nil if that is not known.
	Left *wire.Left
	// OOMKilled says that the engine or the kernel has evidence of a process killed for
	// memory.
	OOMKilled bool
	// Image is the image of the container as the engine's machine reports it: REPOSITORY@DIGEST or an
	// ID; empty if it does not, or has not yet.
	Image string
	// Loss says why the engine itself ended the container; [NotLost] if it did not.
	Loss Loss
	// Foreign lists the signals that others sent through the engine; those that the engine sends
	// itself when it stops are not among them. ForeignErr says why the list could not be obtained,
	// or may lack signals.
	Foreign    []string
	ForeignErr error
}

// ExitStatus returns the exit status that a shell would report: the exit code, or 128
// plus the number of the signal.
func (e End) ExitStatus() int {
	if e.Signal > 0 {
		return 128 + e.Signal
	}
	return e.ExitCode
}

// Usage is the resource usage of a job. CPU and peak memory never decrease during a run.
type Usage struct {
	CPU        time.Duration
	PeakMemory int64
	OOMKills   int64
	// Memory is in use at the moment of a [Container] Sample, without page cache that the kernel can
	// take back at once, in bytes. Processes counts processes and threads, evalbox's init included.
	// Both are 0 in an [End].
	Memory, Processes int64
	// Source names the origin of the figures; it is empty if there are none.
	Source string
}

// Found is one container of evalbox, as found by its labels.
type Found struct {
	ID, Name, Image string
	Labels          map[string]string
	// Running comes up to a second late on a cluster.
	Running bool
	// Ended says that the container has run and is no longer running. A container that
	// neither runs nor has ended may be about to start.
	Ended bool
	// Status is the engine's text, such as "Up 3 minutes".
	Status    string
	CreatedAt time.Time
}

// Info describes an engine.
type Info struct {
	Name, Version, APIVersion string
	// ID identifies the engine's installation and the place of its containers.
	ID string
	// OS, Kernel and Architecture describe the engine's machine.
	OS, Kernel, Architecture string
	StorageDriver, RootDir   string
	CgroupDriver             string
	// Rootless says that the engine does not run as root. UserNamespace says that its
	// containers have a user namespace: their users are others on the machine.
	Rootless, UserNamespace bool
	// LSM is the security module that confines its containers: "apparmor", "selinux",
	// or both with a comma; empty for none.
	LSM string
	// Address is the engine's address: unix://…, tcp://… or ssh://….
	Address string
	// Exposed says which protection is missing on the connection to an engine on another
	// machine. It is a warning in every result.
	Exposed string
	// Local says that the engine's process is visible from here: it runs on this machine,
	// and so do the processes of its containers. It implies nothing about files.
	Local bool
	// Seccomp says that the engine can apply seccomp profiles; MemoryLimit, SwapLimit,
	// CPUQuota and PIDsLimit say which limits it can enforce.
	Seccomp, MemoryLimit, SwapLimit, CPUQuota, PIDsLimit bool
	// Refills says that [Copier] FillVolume writes into the files and directories that a container
	// has mounted already, so that one may wait for its files.
	Refills bool
	// Missing lists features that every run needs and the engine cannot enforce.
	Missing []string
	// Containerd and Runc are the versions of these components.
	Containerd, Runc string
	// Warnings are the engine's own warnings.
	Warnings []string
	Host     spec.Host
}

// Copier is an engine that can receive the files of a run. It is for engines that do not
// share a file system with their caller. Such a run has a staging volume on the engine's
// machine, whose host paths are mounted in place of the caller's own, a helper container
// through which it is filled and read, and a disk monitor. All methods may be called
// concurrently, and for a run without a staging volume.
type Copier interface {
	// CreateVolume creates the staging volume of a Spec whose image is resolved, puts these
	// labels on all of its parts, and returns its host path on the engine's machine. If the
	// name is taken, the error satisfies errors.Is with [ErrNameTaken]; the volume then
	// belongs to another run and must not be removed.
	CreateVolume(ctx context.Context, run spec.Spec, labels map[string]string) (string, error)
	// RecreateHelper recreates a helper container that somebody removed. The files are
	// kept. It fails if the volume is gone.
	RecreateHelper(ctx context.Context, run spec.Spec, labels map[string]string) error
	// FillVolume unpacks an archive into the volume. There is no overall deadline, only a
	// stall timeout. Without a helper container the error satisfies errors.Is with
	// [ErrNoContainer].
	FillVolume(ctx context.Context, runID string, archive io.Reader) error
	// FetchVolume returns the archive of one path below the volume. The names in the
	// archive begin with the last element of the path. The path must not contain a
	// symbolic link. Without a helper container the error is that of FillVolume.
	FetchVolume(ctx context.Context, runID, path string) (io.ReadCloser, error)
	// MonitorVolume starts the disk monitor of a volume and replaces one that already
	// exists. Closing the conversation ends it.
	MonitorVolume(ctx context.Context, run spec.Spec, labels map[string]string) (Conversation, error)
	// RemoveVolume removes a volume, its helper container and its disk monitor. It is safe
	// to call twice and after a failed CreateVolume.
	RemoveVolume(ctx context.Context, runID string) error
	// Volumes lists the staging volumes of all runs, by evalbox's labels.
	Volumes(ctx context.Context) ([]Volume, error)
}

// Volume is the staging volume of one run, as found by its labels.
type Volume struct {
	Name   string
	Labels map[string]string
}

// Conversation holds the attached streams of a helper container.
type Conversation interface {
	// Copy splits the streams into stdout and stderr until both end. It returns nil at
	// the end of the streams, and an error if the connection broke earlier. It must be
	// called exactly once.
	Copy(stdout, stderr io.Writer) error
	Stdin() io.WriteCloser
	// Close breaks the connection. It is safe to call twice.
	Close() error
}

// Passer is an engine whose waiting containers another process of this machine can take over, with
// the connection that keeps them waiting. All methods may be called concurrently.
type Passer interface {
	// Pass gives a container up that has no job. The file is its connection: the container ends
	// once every copy of it is closed. After that only Remove may be called. After an error the
	// container is to be removed.
	Pass(c Container) (Passed, *os.File, error)
	// Receive takes a container of a class over, and asks its init what it sees. It closes the
	// file. After an error the container is to be removed.
	Receive(ctx context.Context, class spec.Class, passed Passed, connection *os.File) (Container, error)
}

// Passed describes a waiting container for the process that takes it over.
type Passed struct {
	// ID is the engine's ID of the container.
	ID string `json:"id"`
	// Up is when it had started.
	Up time.Time `json:"up"`
	// Before is the processor time of the interpreter that waits.
	Before time.Duration `json:"before_ns"`
	// Warnings are the engine's own warnings.
	Warnings []string `json:"warnings"`
}

// Optional interfaces, found by type assertion.
type (
	// Networks is an engine that can refuse a network that it does not have. Otherwise
	// only the start of a container reports it. The refusal is a [*policy.FieldError].
	Networks interface {
		FindNetwork(ctx context.Context, name string) error
	}
	// Identified is an engine with an identity that changes when its process is replaced.
	// The empty string means that the identity is unknown.
	Identified interface {
		Identity(ctx context.Context) string
		// Recall gives the engine the result of an earlier Info, possibly of another
		// process, obtained while the identity was the same.
		Recall(info Info)
	}
	// Waits is an engine whose containers may wait, for example for a machine, before they start.
	Waits interface {
		// OnWait has say called with the reason whenever the container of a name waits, once for
		// each reason, until stop is called. The reason follows "waiting for". say must not block.
		OnWait(name string, say func(why string)) (stop func())
	}
	// Local is a container whose init may be visible as a process of this machine. PID is
	// 0 if it is not.
	Local interface {
		PID(ctx context.Context) (int, error)
	}
	// Restarts is a container that can find out whether somebody else has restarted it.
	Restarts interface {
		Restarted(ctx context.Context) bool
	}
)

// Errors of engines, for errors.Is. Each adapter classifies the errors of its client
// once; nothing above it parses their text.
var (
	// ErrUnavailable means that the engine could not be reached.
	ErrUnavailable = errors.New("container engine unavailable")
	// ErrPermission means that the engine denied access. It is an ErrUnavailable as well.
	ErrPermission = fmt.Errorf("%w: permission denied", ErrUnavailable)
	// ErrUnenforceable means that the engine cannot enforce a limit that every run has.
	ErrUnenforceable = errors.New("limit cannot be enforced")
	// ErrNoContainer means that the engine has no such container (any more).
	ErrNoContainer = errors.New("no such container")
	// ErrFilesGone means that the files of a run were deleted with its container.
	ErrFilesGone = errors.New("the container is gone, and its files with it")
	// ErrNameTaken means that the engine already has a container with that name.
	ErrNameTaken = errors.New("a container of this name exists")
	// ErrNoSource means that the engine does not have the source of a bind mount.
	ErrNoSource = errors.New("the engine does not have this path")
	// ErrNotStarted means that the engine created a container and could not start it. The
	// container has been removed.
	ErrNotStarted = errors.New("the engine could not start the container")
	// ErrNotPlaced means that no machine of the engine takes the container of a run: there is no room,
	// it cannot have the image, or the engine refuses the container. It comes with [ErrNotStarted].
	ErrNotPlaced = errors.New("the engine does not take the container")
	// ErrProtocol means that the process that answers in the container is not evalbox's
	// init.
	ErrProtocol = errors.New("the container's init did not answer as it should")
)

// ReconnectBudget is how long a controller waits for an engine that has gone away.
const ReconnectBudget = time.Minute

// StageExec is the stage of a [LaunchError] that concerns the command itself.
const StageExec = "exec"

// A LaunchError says why init did not execute the program. It is not a failure of the
// engine.
type LaunchError struct {
	// Stage is the step that failed, such as "exec" or "chdir"; see [wire.Report].
	Stage string
	Errno syscall.Errno
}

func (e *LaunchError) Error() string { return fmt.Sprintf("%s: %v", e.Stage, e.Errno) }

func (e *LaunchError) Unwrap() error { return e.Errno }

// ExitCode returns a shell's exit status for a command that it cannot run: 127 if the
// command does not exist, 126 for any other reason.
func (e *LaunchError) ExitCode() int {
	if e.Errno == syscall.ENOENT || e.Errno == syscall.ENOTDIR {
		return 127
	}
	return 126
}
