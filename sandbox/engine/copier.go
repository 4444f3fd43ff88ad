package engine

import (
	"context"
	"io"

	"github.com/evalbox/evalbox/sandbox/spec"
)

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
