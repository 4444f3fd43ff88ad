package pull

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Progress writes what is being done, one line each, with the time since the
// beginning. It is safe for concurrent use. Errors of the writer are ignored:
// progress is never a reason to fail.
type Progress struct {
	start time.Time

	mu sync.Mutex
	w  io.Writer // guarded by mu
}

// NewProgress begins now. A nil writer discards.
func NewProgress(w io.Writer) *Progress {
	if w == nil {
		w = io.Discard
	}
	return &Progress{start: time.Now(), w: w}
}

// Line writes one line of a step.
func (p *Progress) Line(step, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.w, "[%6.1fs] %s: %s\n", time.Since(p.start).Seconds(), step, Visible(strings.TrimSpace(text)))
}

// Write passes the output of the engine on, as it is.
func (p *Progress) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.w.Write(data)
	return len(data), nil
}

// escapeSequence is what colours text or moves the cursor.
var escapeSequence = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`)

// Visible drops the control characters that could drive a terminal, and what would
// be left of their sequences.
func Visible(text string) string {
	text = escapeSequence.ReplaceAllString(text, "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
