package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Bounds of an answer.
const (
	maxHead      = 16 << 10 // bytes of a stream
	maxText      = 8 << 10  // bytes of the traceback and the streams in the text for people
	maxTraceback = 8 << 10
	maxFiles     = 100
	maxWarnings  = 20
)

// An answer is what a tool gives: data for programs, and a text.
type answer struct {
	data any
	text string
}

func (a answer) wire() (*sdk.CallToolResult, error) {
	data, err := json.Marshal(a.data)
	if err != nil {
		return errorAnswer(fmt.Errorf("the answer cannot be encoded: %w", err)), nil
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: a.text}}, StructuredContent: json.RawMessage(data)}, nil
}

// errorAnswer is an answer about an input that was refused, or about our failure. It says which.
func errorAnswer(err error) *sdk.CallToolResult {
	kind, begin := "failed", "evalbox failed: "
	var used *quotaError
	switch {
	case errors.As(err, &used):
		kind, begin = "quota", "refused: "
	case errors.Is(err, errGone), errors.Is(err, errClosing), errors.Is(err, context.Canceled):
		kind, begin = "canceled", "canceled: "
	case isRefusal(err):
		kind, begin = "refused", "refused: "
	}
	message := text.Short(err.Error(), maxText)
	if kind == "canceled" && errors.Is(err, context.Canceled) {
		message = "the client canceled the call"
	}
	shown, hint := begin+terminal.Text(message), hintOf(err)
	data := map[string]any{"error": kind, "message": message}
	if hint != "" {
		shown += "\nhint: " + terminal.Text(hint)
		data["hint"] = hint
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: shown}}, StructuredContent: data}
}

// isRefusal reports whether an error is about the input of a call.
func isRefusal(err error) bool {
	var refused *refusal
	var field *policy.FieldError
	var path *sandbox.PathError
	return errors.As(err, &refused) || errors.As(err, &field) || errors.As(err, &path) && path.Field != "state directory" ||
		errors.Is(err, record.ErrNoRecord) || errors.Is(err, sandbox.ErrBusy)
}

// hintOf says what to try after an error; empty for nothing. The hints of the command line are for
// its operator.
func hintOf(err error) string {
	var knows interface{ Hint() string }
	var field *policy.FieldError
	switch {
	case errors.As(err, &knows):
		return knows.Hint()
	case errors.As(err, &field) && strings.Contains(field.Rule, "maximum"):
		return "leave it out for the limit of this server, or ask for less"
	case errors.As(err, &field):
		return field.Hint
	case errors.Is(err, record.ErrNoRecord):
		return "see the runs of this session with list_runs"
	case errors.Is(err, lock.ErrUnlocked), errors.Is(err, images.ErrNotFound), errors.Is(err, sandbox.ErrEngineUnavailable):
		return "the operator of this server must look at it: sandbox doctor"
	}
	return ""
}

// file is a file that a run left.
type file struct {
	Path   string `json:"path"`
	Size   int64  `json:"size_bytes"`
	SHA256 string `json:"sha256"`
}

// ended is a run as an answer has it.
type ended struct {
	ID              string   `json:"id"`
	Status          string   `json:"status"`
	Fault           string   `json:"fault"`
	Explanation     string   `json:"explanation"`
	ExitCode        int      `json:"exit_code"`
	TimedOut        bool     `json:"timed_out"`
	Score           *float64 `json:"score"`
	DurationSeconds float64  `json:"duration_seconds"`

	Stdout          string `json:"stdout"`
	StdoutBytes     int64  `json:"stdout_bytes"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	Stderr          string `json:"stderr"`
	StderrBytes     int64  `json:"stderr_bytes"`
	StderrTruncated bool   `json:"stderr_truncated"`
	Traceback       string `json:"error_traceback,omitempty"`

	Outputs          []file   `json:"outputs"`
	OutputsTotal     int      `json:"outputs_total"`
	OutputsTruncated bool     `json:"outputs_truncated"`
	OutputsSkipped   int      `json:"outputs_skipped"`
	Warnings         []string `json:"warnings"`
	More             []string `json:"more"`
}

// runAnswer is the trimmed result of a run.
func runAnswer(res *result.Result) answer {
	e := ended{
		ID: res.ID, Status: res.Status.String(), Fault: res.Fault.String(), Explanation: res.Explanation, ExitCode: res.ExitCode,
		TimedOut: res.TimedOut, Score: res.Score, DurationSeconds: res.DurationSeconds,
		StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes,
		Outputs: []file{}, OutputsTotal: len(res.Outputs), OutputsSkipped: res.OutputsLeftOut, Warnings: []string{},
	}
	e.Stdout, e.StdoutTruncated = head(res.Stdout, res.StdoutTruncated)
	e.Stderr, e.StderrTruncated = head(res.Stderr, res.StderrTruncated)
	if res.ErrorTraceback != nil {
		e.Traceback = text.Middle(*res.ErrorTraceback, maxTraceback, 0)
	}
	for _, o := range res.Outputs[:min(len(res.Outputs), maxFiles)] {
		e.Outputs = append(e.Outputs, file{o.Path, o.SizeBytes, o.SHA256})
	}
	e.OutputsTruncated = len(e.Outputs) < len(res.Outputs)
	for _, w := range res.Warnings[:min(len(res.Warnings), maxWarnings)] {
		e.Warnings = append(e.Warnings, text.Short(w, 1000))
	}
	e.More = []string{"evalbox://runs/" + res.ID}
	if e.StdoutTruncated || e.StderrTruncated {
		e.More = append(e.More, "read_output with id "+res.ID)
	}
	if len(e.Outputs) > 0 {
		e.More = append(e.More, "read_file with id "+res.ID)
	}
	return answer{e, e.text(
		stream{"stdout", res.Stdout, res.StdoutBytes, res.StdoutTruncated},
		stream{"stderr", res.Stderr, res.StderrBytes, res.StderrTruncated},
	)}
}

// head cuts a stream. cut says that it was cut before.
func head(stream string, cut bool) (string, bool) {
	if len(stream) <= maxHead {
		return stream, cut
	}
	return whole(stream[:maxHead]), true
}

// whole leaves out a last character that was cut.
func whole(s string) string {
	for n := 1; n <= utf8.UTFMax && n <= len(s); n++ {
		if last := s[len(s)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRuneInString(last) {
				return s[:len(s)-n]
			}
			break
		}
	}
	return s
}

// text is the answer for models that read no data.
func (e ended) text(stdout, stderr stream) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s · %s · run %s\n", e.Status, code(e.ExitCode), text.Seconds(e.DurationSeconds), e.ID)
	if e.Status != result.StatusExited.String() {
		fmt.Fprintf(&b, "%s\n", e.Explanation)
	}
	if e.Score != nil {
		fmt.Fprintf(&b, "score %s\n", text.Number(*e.Score))
	}
	printed(&b, e.Traceback, e.ID, stdout, stderr)
	for i, f := range e.Outputs {
		if i == 10 {
			fmt.Fprintf(&b, "and %d more files\n", e.OutputsTotal-i)
			break
		}
		fmt.Fprintf(&b, "final/%s  %s\n", f.Path, text.Size(f.Size))
	}
	for _, w := range e.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return terminal.Text(b.String())
}

func code(n int) string {
	if n < 0 {
		return "without an exit code"
	}
	return fmt.Sprintf("with exit code %d", n)
}

// A stream is what a run captured of one of its streams. cut says that this is not all of it.
type stream struct {
	name, captured string
	bytes          int64
	cut            bool
}

// printed writes the traceback and the streams of a run into [maxText] bytes. If stderr does not show all
// of the traceback, it comes first: a long output must not hide it. What one stream does not need, the
// other one gets.
func printed(b *strings.Builder, traceback, id string, stdout, stderr stream) {
	room := maxText
	inStderr := len(stdout.captured)+len(stderr.captured) <= room && strings.Contains(stderr.captured, strings.TrimSpace(traceback))
	if traceback != "" && !inStderr {
		shown := text.Middle(traceback, maxText/2, 0)
		fmt.Fprintf(b, "traceback:\n%s\n", strings.TrimSuffix(shown, "\n"))
		room -= len(shown)
	}
	first := min(len(stdout.captured), max(room/2, room-len(stderr.captured)))
	stdout.write(b, first, id)
	stderr.write(b, room-first, id)
}

// write writes a stream into so many bytes: if it is longer, its beginning and its end, with a mark
// between them. What a program prints last says how it ended.
func (s stream) write(b *strings.Builder, most int, id string) {
	if s.bytes == 0 {
		return
	}
	shown := s.captured
	if len(shown) > most {
		shown, s.cut = text.Middle(shown, most, s.bytes-int64(len(shown))), true
	}
	fmt.Fprintf(b, "%s (%d bytes):\n%s\n", s.name, s.bytes, strings.TrimSuffix(shown, "\n"))
	if s.cut {
		fmt.Fprintf(b, "[truncated: read the rest with read_output, id %s, stream %s]\n", id, s.name)
	}
}
