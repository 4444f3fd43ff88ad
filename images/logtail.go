package images

import (
	"bytes"
	"strings"
	"sync"
)

const (
	tailLines     = 12
	tailLineBytes = 400
)

// A logTail keeps the last lines of what a program writes, and reports the lines
// "I: what is being done..." as progress. Its memory is bounded: longer lines are cut.
// It is safe for concurrent use.
type logTail struct {
	progress func(line string)

	mu    sync.Mutex
	part  []byte   // the unfinished line, guarded by mu
	lines []string // guarded by mu
}

// Write takes all of p, always.
func (t *logTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		t.part = append(t.part, line[:min(len(line), tailLineBytes-len(t.part))]...)
		if ended {
			t.finishLine()
		}
		rest = after
	}
	return len(p), nil
}

// finishLine moves the finished line to the kept ones. The caller holds mu.
func (t *logTail) finishLine() {
	line := strings.ToValidUTF8(strings.TrimSpace(string(t.part)), "�")
	t.part = t.part[:0]
	if line == "" {
		return
	}
	if info, ok := strings.CutPrefix(line, "I: "); ok && strings.HasSuffix(info, "...") {
		t.progress(info)
	}
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
}

// String returns the last lines, each with two spaces before it.
func (t *logTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.part) > 0 {
		t.finishLine()
	}
	return "  " + strings.Join(t.lines, "\n  ")
}
