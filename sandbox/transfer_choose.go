package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// errNotShared means that the engine mounted something other than the host's files, or
// does not have them.
var errNotShared = errors.New("the engine does not see the files of this machine")

// chooseTransfer decides how the files of a run reach the engine. An engine whose process
// is visible here mounts them, and the container's init verifies the mounts. For any
// other engine, and for one that is known to have its own file systems, the files are
// copied.
func (r *Runner) chooseTransfer(asked string, info engine.Info) string {
	if asked != "" && asked != spec.TransferAuto {
		return asked
	}
	r.factsMu.Lock()
	defer r.factsMu.Unlock()
	if !info.Local || r.apart[mountNamespace()] {
		return spec.TransferCopy
	}
	return spec.TransferBind
}

// notShared returns the error of a run whose files the engine does not have. The files
// are then copied, unless the request excludes that. An engine that shares no files is
// remembered; one that shares some may share all files of the next run.
func (a *attempt) notShared(ctx context.Context, aPart bool, why error) error {
	r := a.runner
	if a.asked == spec.TransferBind {
		return fmt.Errorf("%w: %w", &policy.FieldError{Field: "transfer", Value: spec.TransferBind,
			Rule: "the engine does not see the folders of this machine, so it cannot mount them"}, why)
	}
	a.log.Debug("the engine does not share our files", logError, why)
	if aPart {
		return fmt.Errorf("%w: %w", errNotShared, why)
	}
	r.factsMu.Lock()
	defer r.factsMu.Unlock()
	if r.apart == nil {
		r.apart = map[string]bool{}
	}
	r.apart[mountNamespace()] = true
	r.rememberFacts(r.identity(ctx))
	return fmt.Errorf("%w: %w", errNotShared, why)
}
