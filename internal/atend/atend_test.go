package atend_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/atend"
)

func TestLeftForTheEnd(t *testing.T) {
	require.False(t, atend.Leave(t.Context(), func() { t.Error("nobody ends a job") }))
	ctx, done := atend.With(t.Context())
	did := 0
	for range 2 {
		require.True(t, atend.Leave(context.WithoutCancel(ctx), func() { did++ }))
	}
	require.Zero(t, did)
	done()
	done()
	require.Equal(t, 2, did)
}
