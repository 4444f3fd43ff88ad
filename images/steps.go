package images

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// steps writes what is being done, one line each, with the time since the
// beginning. It is safe for concurrent use. Errors of the writer are ignored:
// progress is never a reason to fail.
type steps struct {
	start time.Time

	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func newSteps(w io.Writer) *steps { return &steps{start: time.Now(), w: w} }

// line writes one line of a step.
func (s *steps) line(step, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.w, "[%6.1fs] %s: %s\n", time.Since(s.start).Seconds(), step, visible(strings.TrimSpace(text)))
}

// Write passes the output of the engine's builder on.
func (s *steps) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.w.Write(p)
	return len(p), nil
}
