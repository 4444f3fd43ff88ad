package contract

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/sandbox"
)

// maxSession bounds the calls that a session remembers.
const maxSession = 256

// session has the outcomes of cacheable calls of one [Harness], keyed by their input (DT-02).
type session struct {
	mu    *sync.Mutex
	known map[string]Outcome
	order []string // oldest first
}

func newSession() session { return session{mu: &sync.Mutex{}, known: map[string]Outcome{}} }

// cacheKey identifies a cacheable call by everything that it depends on: the document of the adapter,
// the contract, the image, and the content of what the program can read. It is empty for other
// calls, and for those that change files or need an approval.
func (run *execution) cacheKey(ctx context.Context) string {
	e := run.Effective
	if e.Adapted == nil || !e.Adapted.Cacheable || len(e.Needs) > 0 || len(e.Contract.Outputs.OutputFiles)+len(e.Contract.Outputs.Artifacts) > 0 {
		return ""
	}
	parts := []any{e.Adapted.Digest, e.ContractSHA256}
	if !e.Adapted.isRemote() {
		reads, ok := run.reads(ctx)
		if !ok {
			return ""
		}
		parts = append(parts, reads)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return ""
	}
	return sha256Of(string(text))
}

// reads are the image of the program and the hashes of the directories that it can read. It is
// false if they cannot be known, or if the program writes.
func (run *execution) reads(ctx context.Context) ([]string, bool) {
	e, shared := run.Effective, run.Request
	files, violations := Resolve(e.Contract, run.Root, e, run.Dependencies, run.Forbidden)
	if len(violations) > 0 || len(files.Trees) > 0 {
		return nil, false
	}
	plan, err := run.box.Plan(ctx, sandbox.Request{Image: shared.Image, AllowUnlocked: shared.AllowUnlocked, Runtime: shared.Runtime,
		User: shared.User, Transfer: shared.Transfer, Command: []string{"true"}})
	if err != nil {
		return nil, false // the execution says why
	}
	all := []string{plan.Class.Image.ID}
	for _, m := range files.Mounts {
		digest, err := treehash.Of(ctx, m.Source, treehash.Options{})
		if err != nil {
			return nil, false
		}
		all = append(all, m.Target, digest.Sum)
	}
	return all, true
}

// known returns the outcome of the same call in this session.
func (h *Harness) known(key string, run *execution) (Outcome, bool) {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	o, ok := h.session.known[key]
	if key == "" || !ok {
		return Outcome{}, false
	}
	call := *o.Call
	call.Cached = true
	o.Call, o.ExecutionID, o.Metadata = &call, run.outcome.ExecutionID, run.outcome.Metadata
	return o, true
}

// remember keeps a successful outcome for the session. The oldest one makes room.
func (h *Harness) remember(key string, o Outcome) {
	if key == "" {
		return
	}
	s := &h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[key]; !ok {
		if len(s.order) == maxSession {
			delete(s.known, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, key)
	}
	s.known[key] = o
}
