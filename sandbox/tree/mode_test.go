package tree

import (
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestModesOfAppliedChanges: no set-id bit and no new write permission for others is applied, and
// the owner keeps its own.
func TestModesOfAppliedChanges(t *testing.T) {
	for name, test := range map[string]struct{ asked, like, want fs.FileMode }{
		"a new file":                     {0o644, 0, 0o644},
		"a new program":                  {0o755, 0, 0o755},
		"a new file for all":             {0o666, 0, 0o644},
		"everything for all":             {0o777, 0, 0o755},
		"set-user-ID":                    {0o755 | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky, 0, 0o755},
		"a new file that nobody reads":   {0, 0, 0o400},
		"one that others may write":      {0o666, 0o666, 0o666},
		"one that the group may write":   {0o666, 0o664, 0o664},
		"its owner keeps both":           {0o444, 0o644, 0o644},
		"its owner never could write it": {0o644, 0o444, 0o644},
		"fewer rights for others":        {0o600, 0o644, 0o600},
		"a program of before":            {0o755 | fs.ModeSetuid, 0o644 | fs.ModeSetuid, 0o755},
	} {
		t.Run(name, func(t *testing.T) {
			var like fs.FileInfo
			if test.like != 0 {
				like = modeOnly(test.like)
			}
			require.Equal(t, test.want, modeFor(test.asked, like))
		})
	}
}

// modeOnly is the FileInfo of a file of which only the mode is known.
type modeOnly fs.FileMode

func (m modeOnly) Name() string       { return "" }
func (m modeOnly) Size() int64        { return 0 }
func (m modeOnly) Mode() fs.FileMode  { return fs.FileMode(m) }
func (m modeOnly) ModTime() time.Time { return time.Time{} }
func (m modeOnly) IsDir() bool        { return false }
func (m modeOnly) Sys() any           { return nil }
