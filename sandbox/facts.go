package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// An engine's description of itself costs it two processes, a twentieth of the time of a
// short run. It is cached in memory briefly, and on disk for longer while the engine's
// process is known to be the same.
const (
	factsInMemory = 10 * time.Second
	factsOnDisk   = 5 * time.Minute
)

// rememberedFacts is the content of a file in the user's cache directory.
type rememberedFacts struct {
	Identity string      `json:"identity"`
	Version  string      `json:"version"`
	At       time.Time   `json:"at"`
	Facts    engine.Info `json:"facts"`
	// Apart says, by mount namespace, that the engine does not share the host's files.
	Apart map[string]bool `json:"apart"`
}

// factsVersion changes with the fields of [engine.Info], so that a file of another
// version of evalbox is not read.
const factsVersion = "5"

// engineFacts returns the engine's description, at most a few minutes old.
func (r *Runner) engineFacts(ctx context.Context) (engine.Info, error) {
	r.factsMu.Lock()
	defer r.factsMu.Unlock()
	if !r.asked.IsZero() && time.Since(r.asked) < factsInMemory {
		return r.facts, nil
	}
	identity := r.identity(ctx)
	path := factsPath(identity)
	var known rememberedFacts
	if path != "" && record.ReadJSON(path, &known) == nil && known.Identity == identity && known.Version == factsVersion {
		if age := time.Since(known.At); age >= 0 && age < factsOnDisk {
			r.facts, r.asked, r.apart = known.Facts, time.Now(), known.Apart
			r.told = known.At
			if e, ok := r.engine.(engine.Identified); ok {
				e.Recall(known.Facts)
			}
			return r.facts, nil
		}
	}
	info, err := r.engine.Info(ctx)
	if err != nil {
		return engine.Info{}, err
	}
	r.facts, r.asked, r.apart = info, time.Now(), nil
	r.told = r.asked
	r.rememberFacts(identity)
	return info, nil
}

// rememberFacts saves the description of the engine with this identity. It is only an
// optimization: without it the next run asks again. r.factsMu is held.
func (r *Runner) rememberFacts(identity string) {
	path := factsPath(identity)
	if path == "" {
		return
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = record.WriteJSON(path, rememberedFacts{identity, factsVersion, r.told, r.facts, r.apart})
	}
	if err != nil {
		r.log.Debug("the engine's facts were not remembered", logError, err)
	}
}

// identity returns the engine's identity; empty if it is unknown.
func (r *Runner) identity(ctx context.Context) string {
	if e, ok := r.engine.(engine.Identified); ok {
		return e.Identity(ctx)
	}
	return ""
}

// factsPath returns the file that caches an engine's facts; empty if they cannot be
// cached.
func factsPath(identity string) string {
	dir, err := os.UserCacheDir()
	if identity == "" || err != nil {
		return ""
	}
	return filepath.Join(dir, "evalbox", "engine.json")
}

// chooseTransfer decides how the files of a run reach the engine. An engine whose process
// is visible here mounts them, and the container's init verifies the mounts. For any
// other engine, and for one that is known to have its own file systems, the files are
// copied.
func (r *Runner) chooseTransfer(asked string, info engine.Info) string {
	if asked != "" && asked != TransferAuto {
		return asked
	}
	r.factsMu.Lock()
	defer r.factsMu.Unlock()
	if !info.Local || r.apart[mountNamespace()] {
		return TransferCopy
	}
	return spec.TransferBind
}

// notShared handles a [stage.NotSharedError] of a run: the files are then copied, unless
// the request excludes that. An engine that shares no files is remembered; one that shares
// some may share all files of the next run.
func (a *run) notShared(ctx context.Context, err error) error {
	var elsewhere *stage.NotSharedError
	if !errors.As(err, &elsewhere) {
		return err
	}
	if a.asked == spec.TransferBind {
		return fmt.Errorf("%w: %w", &policy.FieldError{Field: "transfer", Value: spec.TransferBind,
			Rule: "the engine does not see the folders of this machine, so it cannot mount them"}, elsewhere.Err)
	}
	a.log.Debug("the engine does not share our files", logError, elsewhere.Err)
	if r := a.runner; !elsewhere.Some {
		r.factsMu.Lock()
		defer r.factsMu.Unlock()
		if r.apart == nil {
			r.apart = map[string]bool{}
		}
		r.apart[mountNamespace()] = true
		r.rememberFacts(r.identity(ctx))
	}
	return err
}

// mountNamespace identifies this process's view of the file system.
func mountNamespace() string {
	name, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return "" // without /proc only one namespace is known
	}
	return name
}
