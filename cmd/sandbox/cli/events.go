package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/evalbox/evalbox/sandbox"
)

// maxEventOutput bounds the output in one event, in bytes.
const maxEventOutput = 16 << 10

// Events prints the events of a run as JSON, one object on a line, for programs that follow
// it. Its methods may be called concurrently. A reader that goes away does not harm the run.
type Events struct {
	// On says that events are asked for.
	On bool
	// Summary is the line about the run for people, and Final the directory of its outputs. They
	// are known when it has ended.
	Summary, Final string

	mu      sync.Mutex
	out     io.Writer
	runID   string
	streams []*eventStream
	over    bool // the last event was printed
	err     error
}

// event is one line. docs/events.md describes it.
type event struct {
	Schema string    `json:"schema"`
	Event  string    `json:"event"`
	At     time.Time `json:"at"`
	RunID  string    `json:"run_id,omitempty"`
	Why    string    `json:"why,omitempty"`
	Stream string    `json:"stream,omitempty"`
	Text   string    `json:"text,omitempty"`
	Base64 []byte    `json:"base64,omitempty"`
	Code   *int      `json:"code,omitempty"`
	Error  string    `json:"error,omitempty"`
	Hints  []string  `json:"hints,omitempty"`
	// Summary and Final are those of [Events].
	Summary string          `json:"summary,omitempty"`
	Final   string          `json:"final,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
}

// Follow prints the events of the run of a session with this ID, empty if it is not known yet.
func (x *Session) Follow(id string) {
	e := &x.Events
	e.out, e.runID = x.Out, id
	x.IO = sandbox.IO{Stdin: x.IO.Stdin, Stdout: e.stream("stdout"), Stderr: e.stream("stderr")}
	waiting, started := x.Hooks.Waiting, x.Hooks.Started
	x.Hooks.Waiting = func(why string) {
		e.print(event{Event: "waiting", Why: why})
		waiting(why)
	}
	x.Hooks.Begin = func(id string) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.runID = id
		return nil
	}
	x.Hooks.Started = func() {
		e.print(event{Event: "started"})
		started()
	}
}

// stream returns a writer whose text becomes events.
func (e *Events) stream(name string) io.Writer {
	s := &eventStream{events: e, name: name}
	e.streams = append(e.streams, s)
	return s
}

// print prints an event. Later events of a reader that is gone are dropped.
func (e *Events) print(v event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.locked(v)
}

func (e *Events) locked(v event) {
	if e.err != nil || e.over {
		return
	}
	v.Schema, v.At, v.RunID = "evalbox/run-event/v1", time.Now().UTC(), e.runID
	line := json.NewEncoder(e.out)
	line.SetEscapeHTML(false)
	e.err = line.Encode(v) // one call of Write
}

// end prints the last event, once, after the rest of the output.
func (e *Events) end(v event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.streams {
		s.say(s.rest)
		s.rest = nil
	}
	e.locked(v)
	e.over = true
	return ReaderGone(e.err)
}

// ended prints a result as the last event.
func (e *Events) ended(code int, value any) error {
	text, err := json.Marshal(value)
	if wire, ok := value.(encoder); ok {
		text, err = wire.Encode()
	}
	if err != nil {
		return err
	}
	return resultLost(e.end(event{Event: "ended", Code: &code, Summary: e.Summary, Final: e.Final, Result: text}))
}

// failed prints our failure as the last event, if there is none.
func (a *App) failed(err error) {
	if a.Events.out == nil {
		a.Events.out = a.Out
	}
	_ = a.Events.end(event{Event: "error", Code: &a.Code, Error: err.Error(), Hints: a.Hints(err)}) // stderr has it too
}

type eventStream struct {
	events *Events
	name   string
	rest   []byte // an unfinished character
}

func (s *eventStream) Write(p []byte) (int, error) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	text := slices.Concat(s.rest, p)
	for len(text) > 0 {
		n := whole(text[:min(len(text), maxEventOutput)])
		if n == 0 {
			break
		}
		s.say(text[:n])
		text = text[n:]
	}
	s.rest = bytes.Clone(text)
	return len(p), nil
}

// say prints output as text, or as base64 if it is not UTF-8. The lock is held.
func (s *eventStream) say(text []byte) {
	switch {
	case len(text) == 0:
	case utf8.Valid(text):
		s.events.locked(event{Event: "output", Stream: s.name, Text: string(text)})
	default:
		s.events.locked(event{Event: "output", Stream: s.name, Base64: text})
	}
}

// whole is the length of text without an unfinished character at its end.
func whole(text []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if rest := text[len(text)-i:]; utf8.RuneStart(rest[0]) {
			if !utf8.FullRune(rest) {
				return len(text) - i
			}
			break
		}
	}
	return len(text)
}
