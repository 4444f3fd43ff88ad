package images

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMarkUsed(t *testing.T) {
	const idOfX = "sha256:" + testID
	dir := filepath.Join(t.TempDir(), "evalbox", "images")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	assert.True(t, LastUse(dir, idOfX).IsZero())
	require.NoError(t, MarkUsed(dir, idOfX, at))
	assert.True(t, LastUse(dir, idOfX).Equal(at))
	require.NoError(t, MarkUsed(dir, idOfX, at.Add(time.Hour)))
	assert.True(t, LastUse(dir, idOfX).Equal(at.Add(time.Hour)))
	for _, id := range []string{"", "x", "sha256:", "sha256:../../x", "sha256:0123"} {
		require.NoError(t, MarkUsed(dir, id, at))
		assert.True(t, LastUse(dir, id).IsZero())
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 1)
	require.Error(t, MarkUsed(filepath.Join(dir, filepath.Base(files[0].Name()), "below"), idOfX, at))
}
