package stream

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// TestResume goes on with the file of a recorder that died. The stream comes again in pieces
// of several sizes, from its beginning or from later on.
func TestResume(t *testing.T) {
	text := pattern(1, 1000)
	for name, test := range map[string]struct {
		recorded, again []byte
		limit           int64
		file, all       []byte
		parted          bool
	}{
		"nothing was recorded":   {nil, text, 5000, text, text, false},
		"a part":                 {text[:400], text, 5000, text, text, false},
		"everything":             {text, text, 5000, text, text, false},
		"more than comes again":  {text, text[:700], 5000, text, text, false},
		"nothing comes again":    {text[:400], nil, 5000, text[:400], text[:400], false},
		"the file is full":       {text[:400], text, 400, text[:400], text, false},
		"the beginning is lost":  {text[:400], text[600:], 5000, bytes.Join([][]byte{text[:400], text[600:]}, nil), bytes.Join([][]byte{text[:400], text[600:]}, nil), true},
		"another one comes late": {text[:400], bytes.Join([][]byte{text[:300], text[600:]}, nil), 5000, bytes.Join([][]byte{text[:400], text[:300], text[600:]}, nil), bytes.Join([][]byte{text[:400], text[:300], text[600:]}, nil), true},
	} {
		for _, size := range []int{1, 7, 300, 1000} {
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, record.StdoutFile)
				require.NoError(t, os.WriteFile(path, test.recorded, 0o600))
				var seen, live bytes.Buffer
				out, err := OpenOutput(dir, Options{FileBytes: test.limit, CaptureStdout: 5000, WatchStdout: []io.Writer{&seen},
					LiveStdout: &live, Resume: true})
				require.NoError(t, err)
				for at := 0; at < len(test.again); at += size {
					put(t, out.Stdout, test.again[at:min(at+size, len(test.again))])
				}
				require.Empty(t, out.Close())
				onDisk, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, test.file, onDisk)
				require.Equal(t, test.all, seen.Bytes())
				require.Equal(t, test.all, live.Bytes())
				require.EqualValues(t, len(test.all), out.Stdout.Total())
				require.EqualValues(t, len(test.file), out.Stdout.Kept())
				require.Equal(t, test.parted, out.Stdout.Parted())
			})
		}
	}
}

// TestResumeFindsTheScore that the dead recorder had seen.
func TestResumeFindsTheScore(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, record.StdoutFile), []byte("Final Validation Perf"), 0o600))
	var score result.ScoreScanner
	out, err := OpenOutput(dir, Options{FileBytes: 100, CaptureStdout: 100, WatchStdout: []io.Writer{&score}, Resume: true})
	require.NoError(t, err)
	put(t, out.Stdout, []byte("Final Validation Performance: 0.5\n"))
	require.Empty(t, out.Close())
	require.InDelta(t, 0.5, *score.Finite(), 0)
	require.Equal(t, "Final Validation Performance: 0.5\n", out.Stdout.Text.Text())
}
