package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// An engine's description of itself costs it two processes, a twentieth of the
// time of a short run. It is remembered in memory for a while, and on disk for as
// long as the engine's process can be told to be the same.
const (
	factsInMemory = 10 * time.Second
	factsOnDisk   = 5 * time.Minute
)

// identifier is what an engine may offer besides [Engine]: an identity that
// changes when the engine's process does. The empty string means that it cannot
// be told.
type identifier interface {
	Identity(ctx context.Context) string
}

// rememberedFacts is a file of the user's cache folder.
type rememberedFacts struct {
	Identity string     `json:"identity"`
	Version  string     `json:"version"`
	At       time.Time  `json:"at"`
	Facts    EngineInfo `json:"facts"`
	// Shares says whether the engine sees the files of a state folder, from a
	// mount namespace.
	Shares map[string]bool `json:"shares"`
}

// factsVersion changes with the fields of [EngineInfo], so that a file of another
// version of ours is not read.
const factsVersion = "4"

// engineFacts is the engine's description, asked for again now and then.
func (r *Runner) engineFacts(ctx context.Context) (EngineInfo, error) {
	r.factsMu.Lock()
	defer r.factsMu.Unlock()
	if !r.asked.IsZero() && time.Since(r.asked) < factsInMemory {
		return r.facts, nil
	}
	identity := r.identity(ctx)
	path := factsPath(identity)
	var known rememberedFacts
	if path != "" && readJSON(path, &known) == nil && known.Identity == identity && known.Version == factsVersion {
		if age := time.Since(known.At); age >= 0 && age < factsOnDisk {
			r.facts, r.asked, r.shares = known.Facts, time.Now(), known.Shares
			r.told = known.At
			return r.facts, nil
		}
	}
	info, err := r.engine.Info(ctx)
	if err != nil {
		return EngineInfo{}, err
	}
	r.facts, r.asked, r.shares = info, time.Now(), nil
	r.told = r.asked
	r.rememberFacts(identity)
	return info, nil
}

// rememberFacts writes down what the engine of this identity said. It is only a
// saving: without it the next run asks again. r.factsMu is held.
func (r *Runner) rememberFacts(identity string) {
	path := factsPath(identity)
	if path == "" {
		return
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = writeJSON(path, rememberedFacts{identity, factsVersion, r.told, r.facts, r.shares})
	}
	if err != nil {
		r.log.Debug("the engine's facts were not remembered", logError, err)
	}
}

// identity is the engine's, if it tells one.
func (r *Runner) identity(ctx context.Context) string {
	if engine, ok := r.engine.(identifier); ok {
		return engine.Identity(ctx)
	}
	return ""
}

// factsPath is where the facts of an engine are remembered; empty when they
// cannot be.
func factsPath(identity string) string {
	dir, err := os.UserCacheDir()
	if identity == "" || err != nil {
		return ""
	}
	return filepath.Join(dir, "evalbox", "engine.json")
}
