// Package said bounds what an engine says in an error. An engine, or something in its place, may
// answer with a message of any length.
package said

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
)

const (
	// most bounds a message, in bytes.
	most = 1000
	// maxBody bounds the answer that is read for its message, in bytes.
	maxBody = 1 << 20
)

// Text is a message of an engine: its beginning and its end, with a mark between them, if it is long.
// The end often has the cause.
func Text(message string) string { return text.Middle(message, most, 0) }

// Bound bounds the messages of all failed requests of a client.
func Bound(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode < http.StatusBadRequest || req.Method == http.MethodHead {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	_ = resp.Body.Close() // the rest does not matter
	if err != nil {
		return nil, err
	}
	body, resp.Status = bounded(body), text.Short(resp.Status, 200)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// bounded bounds the message in the body of an answer, which is an object with a message, or text.
func bounded(body []byte) []byte {
	var answer map[string]json.RawMessage
	if json.Unmarshal(body, &answer) != nil {
		return []byte(Text(string(body)))
	}
	for key, value := range answer { // clients do not regard the case of the key
		if !strings.EqualFold(key, "message") {
			continue
		}
		var message string
		if json.Unmarshal(value, &message) != nil {
			message = string(value)
		}
		answer[key], _ = json.Marshal(Text(message)) // every text has a form in JSON
	}
	short, err := json.Marshal(answer)
	if err != nil {
		return []byte(Text(string(body)))
	}
	return short
}
