package engine

import (
	"context"
	"io"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// Copier is an engine that can receive the files of a run. It is for engines that do not
// share a file system with their caller. Such a run has a depot: a staging volume on the
// engine's machine, whose host paths are mounted in place of the caller's own. All
// methods may be called concurrently, and for a run without a depot.
type Copier interface {
	// MakeDepot creates the depot of a Spec whose image is resolved, puts these labels on
	// all of its parts, and returns its host path on the engine's machine. If the name is
	// taken, the error satisfies errors.Is with [ErrNameTaken]; the depot then belongs to
	// another run and must not be removed.
	MakeDepot(ctx context.Context, run spec.Spec, labels map[string]string) (string, error)
	// MendDepot recreates the helper container of a depot after somebody removed it. The
	// files are kept. It fails if the volume is gone.
	MendDepot(ctx context.Context, run spec.Spec, labels map[string]string) error
	// FillDepot unpacks an archive into the depot. There is no overall deadline, only a
	// stall timeout. Without a helper container the error satisfies errors.Is with
	// [ErrNoContainer].
	FillDepot(ctx context.Context, runID string, archive io.Reader) error
	// FetchDepot returns the archive of one path below the depot. The names in the
	// archive begin with the last element of the path. The path must not contain a
	// symbolic link. Without a helper container the error is that of FillDepot.
	FetchDepot(ctx context.Context, runID, path string) (io.ReadCloser, error)
	// WatchDepot starts the disk monitor of a depot and replaces one that already exists.
	// Closing the conversation ends it.
	WatchDepot(ctx context.Context, run spec.Spec, labels map[string]string) (Conversation, error)
	// RemoveDepot removes all parts of a depot. It is safe to call twice and after a
	// failed MakeDepot.
	RemoveDepot(ctx context.Context, runID string) error
	// Depots lists the volumes of runs, by evalbox's labels.
	Depots(ctx context.Context) ([]Depot, error)
}

// Depot is the volume of one run, as found by its labels.
type Depot struct {
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
