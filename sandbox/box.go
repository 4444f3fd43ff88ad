package sandbox

import (
	"context"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// A Box is the part of a [Runner] that a harness needs. Harnesses take this interface, so
// that tests and wrappers can stand in for a runner. Its methods may be called concurrently.
type Box interface {
	// Plan returns the plan of a run; nothing starts.
	Plan(ctx context.Context, req Request) (spec.Spec, error)
	// Run runs a request; see [Runner.Run].
	Run(ctx context.Context, req Request, opts ...RunOption) (*result.Result, error)
	// Adopt finishes a run whose controller died; see [Runner.Adopt].
	Adopt(ctx context.Context, id string, opts ...RunOption) (*result.Result, error)
	// Store holds the records of the runs.
	Store() *record.Store
	// ApplyTree writes back a working copy that a run changed.
	ApplyTree(ctx context.Context, id, target string, opts tree.ApplyOptions) (tree.Report, error)
	// ClearFinal empties a final/ that the run keep did not fill.
	ClearFinal(ctx context.Context, final, keep string) (warning string, err error)
	// LeftBy returns the run whose outputs, unchanged, are in a final/; empty for none.
	LeftBy(ctx context.Context, final string) string
}

var _ Box = (*Runner)(nil)
