package contract

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/evalbox/evalbox/harness/trial"
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

// cacheKey identifies a cacheable call by everything that it depends on: the adapter, the contract, the
// image, and the content of the input files. It is empty for other calls.
func (run *execution) cacheKey() string {
	e := run.Effective
	if e.Adapted == nil || !e.Adapted.Cacheable || len(e.Needs) > 0 { // an approval is for one execution
		return ""
	}
	files, violations := []trial.File(nil), []Violation(nil)
	if e.FilesystemLevel != "" {
		var r Resolved
		r, violations = Resolve(e.Contract, run.Root, e, run.Dependencies, run.Forbidden)
		files = r.InputFiles
	}
	text, err := json.Marshal([]any{e.Adapted.Digest, e.ContractSHA256, run.Request.Image, files})
	if err != nil || len(violations) > 0 {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// known returns the outcome of the same call in this session.
func (h *Harness) known(run *execution) (Outcome, bool) {
	key := run.cacheKey()
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	o, ok := h.session.known[key]
	if key == "" || !ok {
		return Outcome{}, false
	}
	call := *o.Call
	call.Cached = true
	o.Call, o.ExecutionID, o.Metadata, o.usage = &call, run.outcome.ExecutionID, run.outcome.Metadata, trial.Usage{}
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
