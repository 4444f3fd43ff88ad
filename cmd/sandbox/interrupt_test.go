package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	other := errors.New("container cannot be removed")
	require.Equal(t, other, interrupted(ctx, other), "nobody interrupted")
	cause := interruption{os.Interrupt}
	cancel(cause)
	require.EqualError(t, interrupted(ctx, fmt.Errorf("asking: %w", cause)), "interrupted: interrupt")
	require.EqualError(t, interrupted(ctx, fmt.Errorf("asking: %w", context.Canceled)), "interrupted: interrupt")
	require.EqualError(t, interrupted(ctx, errors.Join(cause, other)), "interrupted: interrupt\ncontainer cannot be removed")
}
