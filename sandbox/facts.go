package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// An engine's description of itself costs it two processes, a twentieth of the time of a
// short run. It is cached in memory briefly, and on disk for longer while the engine's
// process is known to be the same.
const (
	factsInMemory = 10 * time.Second
	factsOnDisk   = 5 * time.Minute
	// factsPatience bounds one call for them. Every engine bounds its own calls.
	factsPatience = time.Minute
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
const factsVersion = "7"

// factCache remembers what the engine says of itself. It is safe for concurrent use.
type factCache struct {
	log *slog.Logger
	// asking is the call of the engine that is in progress. No lock is held over it.
	asking singleflight.Group

	mu   sync.Mutex
	info engine.Info
	// looked is when info was last looked up, given when the engine gave it.
	looked, given time.Time
	// apart says, by mount namespace, that the engine does not share the host's files.
	apart map[string]bool
}

// get returns the engine's description, at most a few minutes old. Callers at one time share one call of
// the engine: each waits for it as long as its own ctx lasts, and the call goes on without any of them.
func (f *factCache) get(ctx context.Context, e engine.Engine) (engine.Info, error) {
	f.mu.Lock()
	info, known := f.info, !f.looked.IsZero() && time.Since(f.looked) < factsInMemory
	f.mu.Unlock()
	if known {
		return info, nil
	}
	if ctx.Err() != nil {
		return engine.Info{}, ctx.Err()
	}
	answer := f.asking.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), factsPatience)
		defer cancel()
		return f.ask(ctx, e)
	})
	select {
	case is := <-answer:
		info, _ = is.Val.(engine.Info)
		return info, is.Err
	case <-ctx.Done():
		return engine.Info{}, fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
	}
}

// ask looks the engine's description up on disk, else it asks the engine.
func (f *factCache) ask(ctx context.Context, e engine.Engine) (engine.Info, error) {
	identity := identityOf(ctx, e)
	path := factsPath(identity)
	var known rememberedFacts
	if path != "" && record.ReadJSON(path, &known) == nil && known.Identity == identity && known.Version == factsVersion {
		if age := time.Since(known.At); age >= 0 && age < factsOnDisk {
			if e, ok := e.(engine.Identified); ok {
				e.Recall(known.Facts)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.info, f.looked, f.given, f.apart = known.Facts, time.Now(), known.At, known.Apart
			return f.info, nil
		}
	}
	info, err := e.Info(ctx)
	if err != nil {
		return engine.Info{}, err
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.info, f.looked, f.given, f.apart = info, now, now, nil
	f.save(identity)
	return info, nil
}

// save writes the description of the engine with this identity to disk. It is only an
// optimization: without it the next run asks again. f.mu is held.
func (f *factCache) save(identity string) {
	path := factsPath(identity)
	if path == "" {
		return
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = record.WriteJSON(path, rememberedFacts{identity, factsVersion, f.given, f.info, f.apart})
	}
	if err != nil {
		f.log.Debug("the engine's facts were not remembered", logError, err)
	}
}

// identityOf returns the engine's identity; empty if it is unknown.
func identityOf(ctx context.Context, e engine.Engine) string {
	if e, ok := e.(engine.Identified); ok {
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

// transfer decides how the files of a run reach the engine. An engine whose process is
// visible here mounts them, and the container's init verifies the mounts. For any other
// engine, and for one that is known to have its own file systems, the files are copied.
func (f *factCache) transfer(asked string, info engine.Info) string {
	if asked != "" && asked != spec.TransferAuto {
		return asked
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !info.Local || f.apart[mountNamespace()] {
		return spec.TransferCopy
	}
	return spec.TransferBind
}

// setApart remembers that the engine does not share the host's files.
func (f *factCache) setApart(ctx context.Context, e engine.Engine) {
	identity := identityOf(ctx, e)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.apart == nil {
		f.apart = map[string]bool{}
	}
	f.apart[mountNamespace()] = true
	f.save(identity)
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
			Rule: "the engine does not see the directories of this machine, so it cannot mount them"}, elsewhere.Err)
	}
	a.log.Debug("the engine does not share our files", logError, elsewhere.Err)
	if !elsewhere.Some {
		a.runner.facts.setApart(ctx, a.runner.engine)
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
