package gpu

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	// smiLimit bounds one look at the GPUs: a driver in trouble lets nvidia-smi
	// hang.
	smiLimit = 10 * time.Second
	// maxSMI bounds what is kept of its output: 64 GPUs take 10 KiB.
	maxSMI = 256 << 10
)

// ErrNoTool means that there is no nvidia-smi on this machine's PATH.
var ErrNoTool = errors.New("nvidia-smi not found")

// An SMIError is what nvidia-smi said instead of an answer.
type SMIError struct {
	// Text is the first line that it printed, made harmless; it may be empty.
	Text string
	// Err is how it ended; nil when it claimed success.
	Err error
}

func (e *SMIError) Error() string {
	switch {
	case e.Text == "":
		return fmt.Sprintf("nvidia-smi failed: %v", e.Err)
	case e.Err == nil:
		return fmt.Sprintf("nvidia-smi says %q", e.Text)
	}
	return fmt.Sprintf("nvidia-smi says %q (%v)", e.Text, e.Err)
}

func (e *SMIError) Unwrap() error { return e.Err }

// smi runs nvidia-smi and returns its stdout. When it fails, the error quotes
// what it printed: it prints errors to stdout.
func smi(ctx context.Context, args ...string) (string, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return "", ErrNoTool
	}
	ctx, cancel := context.WithTimeoutCause(ctx, smiLimit, fmt.Errorf("no answer within %v", smiLimit))
	defer cancel()
	var stdout, stderr head
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A child of it that keeps the pipe open must not hold us up.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return stdout.text(), &SMIError{Text: harmless(firstLine(stdout.text() + "\n" + stderr.text())), Err: err}
	}
	return stdout.text(), nil
}

// head keeps the beginning of a stream and takes all of it.
type head struct{ kept []byte }

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxSMI-len(h.kept))]...)
	return len(p), nil
}

func (h *head) text() string { return string(h.kept) }

// firstLine is the first line that is not empty.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// maxQuote bounds what is quoted of a text in a message.
const maxQuote = 200

// harmless makes a text fit for a message: printable ASCII, bounded.
func harmless(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text[:min(len(text), 4*maxQuote)])
	if len(text) > maxQuote {
		return text[:maxQuote] + "…"
	}
	return text
}
