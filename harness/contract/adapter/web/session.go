package web

import (
	"context"
	"net/http"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/egress"
)

// HTTPClient returns a client for a protocol above HTTP, with the guard of [Client.Do]: it
// reaches what the egress permits, by name and by address, and follows no redirect. Its
// connections end with ctx.
func (c *Client) HTTPClient(ctx context.Context, e policy.Egress) (*http.Client, error) {
	dialer, err := egress.NewDialer(e)
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport:     &guard{rules: dialer.Rules, next: newTransport(ctx, dialer, c.Roots)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
