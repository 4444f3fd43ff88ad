package engine

import (
	"context"
	"io"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// Copier is an engine that can be sent the files of a run, for one that does not share a
// file system with its caller. Such a run has a depot: a folder on the engine's machine,
// whose host paths are mounted as the caller's own are otherwise. All methods may
// be called concurrently, and for a run that has no depot.
type Copier interface {
	// MakeDepot makes the depot of a Spec whose image is resolved, with these
	// labels on all its parts, and returns its host path on the engine's
	// machine. A name that is taken is an error that satisfies errors.Is with
	// [ErrNameTaken]; it is then another run's, and not to be removed.
	MakeDepot(ctx context.Context, run spec.Spec, labels map[string]string) (string, error)
	// MendDepot makes the courier of a depot again, which somebody removed. The
	// files are where they were; when they are not, it is an error.
	MendDepot(ctx context.Context, run spec.Spec, labels map[string]string) error
	// FillDepot unpacks an archive in the depot. It takes as long as it takes,
	// as long as it gets on. Without a courier it is an error that satisfies
	// errors.Is with [ErrNoContainer].
	FillDepot(ctx context.Context, runID string, archive io.Reader) error
	// FetchDepot is the archive of one path below the depot. The names in it
	// begin with the path's last element. The path must not hold a link. Without
	// a courier it is an error as of FillDepot.
	FetchDepot(ctx context.Context, runID, path string) (io.ReadCloser, error)
	// WatchDepot starts the watcher of a depot, instead of one that is there.
	// Closing the conversation ends it.
	WatchDepot(ctx context.Context, run spec.Spec, labels map[string]string) (Conversation, error)
	// RemoveDepot removes all parts. It is safe to call twice and after a
	// failed MakeDepot.
	RemoveDepot(ctx context.Context, runID string) error
	// Depots lists the volumes that carry our label.
	Depots(ctx context.Context) ([]Depot, error)
}

// Depot is one volume of ours, as found by its labels.
type Depot struct {
	Name   string
	Labels map[string]string
}

// Conversation is the attached streams of a helper.
type Conversation interface {
	// Copy splits the streams into stdout and stderr until both end. It
	// returns nil at the end of the streams, and an error when the connection
	// broke before. It must be called exactly once.
	Copy(stdout, stderr io.Writer) error
	Stdin() io.WriteCloser
	// Close breaks the connection. It is safe to call twice.
	Close() error
}
