package fsx

import (
	"context"
	"io"
)

// WithContext reads from r until ctx ends; reading is then the cause of that.
func WithContext(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context //nolint:containedctx // lives as long as the one read that it interrupts
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
