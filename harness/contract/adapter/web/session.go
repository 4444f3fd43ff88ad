package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/egress"
)

// A Session is the way to one server for a protocol above HTTP, with the guard of [Client.Do]: it
// reaches what the egress permits, by name and by address, and follows no redirect. Its
// connections end with its context.
type Session struct {
	HTTP *http.Client

	answered atomic.Bool
	room     atomic.Int64
}

// errRoom is a server that sends more than a session may receive.
var errRoom = errors.New("the server sent more than a session may receive")

// Session begins a session that may receive so many bytes, after decompression.
func (c *Client) Session(ctx context.Context, e policy.Egress, most int64) (*Session, error) {
	dialer, err := egress.NewDialer(e)
	if err != nil {
		return nil, err
	}
	s := &Session{}
	s.room.Store(most)
	next := &guard{rules: dialer.Rules, next: newTransport(ctx, dialer, c.Roots)}
	s.HTTP = &http.Client{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil {
				s.answered.Store(true)
				answer.Body = &boundedBody{answer.Body, s}
			}
			return answer, err
		}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// Answered reports whether the server has answered a request, with whatever.
func (s *Session) Answered() bool { return s.answered.Load() }

// boundedBody is the body of a response within a session.
type boundedBody struct {
	io.ReadCloser

	session *Session
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.session.room.Add(-int64(n)) < 0 {
		return 0, errRoom
	}
	return n, err
}
