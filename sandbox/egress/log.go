package egress

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"sync/atomic"
)

// Verdicts of an [Entry].
const (
	Allowed = "allowed"
	Refused = "refused"
)

// Entry is one line of the log: one request and its outcome.
type Entry struct {
	// Time is the time of the request (RFC 3339, UTC).
	Time string `json:"time"`
	// Method is that of the request, CONNECT for a tunnel; empty for a connection beyond
	// the limit.
	Method string `json:"method"`
	Host   string `json:"host"`
	Port   uint16 `json:"port"`
	// Address is the address that was dialed; empty if none was.
	Address string `json:"address"`
	// Verdict is [Allowed] or [Refused]. Rule is the rule that decided.
	Verdict string `json:"verdict"`
	Rule    string `json:"rule"`
	// Status is that of the host's answer; 0 for a tunnel, or without an answer.
	Status int `json:"status,omitempty"`
	// Error is why an allowed request failed.
	Error string `json:"error,omitempty"`
	// BytesUp counts the bytes to the host, BytesDown those from it, on the connection of
	// the request.
	BytesUp         int64   `json:"bytes_up"`
	BytesDown       int64   `json:"bytes_down"`
	DurationSeconds float64 `json:"duration_seconds"`
}

// requestLog is a bounded log.
type requestLog struct {
	mu      sync.Mutex
	to      io.Writer
	limit   int64
	written int64
	dropped atomic.Int64
}

func (l *requestLog) add(entry Entry) {
	if l.to == nil {
		return
	}
	line, err := json.Marshal(entry)
	line = append(line, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.written+int64(len(line)) > l.limit {
		l.dropped.Add(1)
		return
	}
	n, err := l.to.Write(line)
	l.written += int64(n)
	if err != nil {
		l.dropped.Add(1)
	}
}

// clip bounds a text that the program sent.
func clip(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
