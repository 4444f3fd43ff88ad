package docker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// dockerFrame is a frame of an attached stream.
func dockerFrame(stream byte, text string) string {
	header := []byte{stream, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(header[4:], uint32(len(text)))
	return string(header) + text
}

func TestDemultiplex(t *testing.T) {
	long := strings.Repeat("0123456789", 20_000)
	for name, test := range map[string]struct {
		stream, stdout, stderr string
		err                    error
		says                   string
	}{
		"nothing":              {},
		"both":                 {stream: dockerFrame(1, "a") + dockerFrame(2, "b") + dockerFrame(1, "c"), stdout: "ac", stderr: "b"},
		"empty frames":         {stream: dockerFrame(1, "") + dockerFrame(2, "") + dockerFrame(1, "x"), stdout: "x"},
		"more than the buffer": {stream: dockerFrame(2, long) + dockerFrame(1, long), stdout: long, stderr: long},
		"cut in a header":      {stream: dockerFrame(1, "a") + "\x01\x00", stdout: "a", err: io.ErrUnexpectedEOF},
		"cut in a frame":       {stream: dockerFrame(1, "abc")[:10], stdout: "ab", err: io.ErrUnexpectedEOF},
		"an unknown stream":    {stream: dockerFrame(1, "a") + dockerFrame(7, "b"), stdout: "a", err: errFrame},
		"text without frames":  {stream: "hello, world, without a header", err: errFrame},
		"nonzero padding":      {stream: "\x01\x00\x01\x00\x00\x00\x00\x01a", err: errFrame},
		"the engine complains": {stream: dockerFrame(1, "a") + dockerFrame(3, "no\n") + dockerFrame(1, "b"), stdout: "a", says: `the engine says: "no\n"`},
	} {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "early EOF": iotest.DataErrReader,
		} {
			var stdout, stderr bytes.Buffer
			err := demultiplex(reader(strings.NewReader(test.stream)), &stdout, &stderr)
			require.Equal(t, test.stdout, stdout.String(), "%s, %s", name, how)
			require.Equal(t, test.stderr, stderr.String(), "%s, %s", name, how)
			switch {
			case test.says != "":
				require.ErrorContains(t, err, test.says)
			default:
				require.ErrorIs(t, err, test.err, "%s, %s", name, how)
			}
		}
	}
}

// TestDemultiplexTakesNobodysWord: a frame that claims 4 GiB costs as much as one of one
// byte.
func TestDemultiplexTakesNobodysWord(t *testing.T) {
	for _, stream := range []byte{frameStdout, frameComplaint} {
		endless := io.MultiReader(bytes.NewReader([]byte{stream, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}), io.LimitReader(zeros{}, 64<<20))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.ErrorIs(t, demultiplex(endless, io.Discard, io.Discard), io.ErrUnexpectedEOF)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func FuzzDemultiplex(f *testing.F) {
	f.Add([]byte(dockerFrame(1, "a") + dockerFrame(2, "b") + dockerFrame(3, "c")))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var whole, pieces [2]bytes.Buffer
		err := demultiplex(bytes.NewReader(stream), &whole[0], &whole[1])
		again := demultiplex(iotest.OneByteReader(bytes.NewReader(stream)), &pieces[0], &pieces[1])
		require.Equal(t, err, again)
		require.Equal(t, whole[0].String(), pieces[0].String())
		require.Equal(t, whole[1].String(), pieces[1].String())
	})
}

func TestSinkPassesEveryByteOnce(t *testing.T) {
	const text = "the output of a program"
	for cut := range len(text) {
		var got strings.Builder
		s := newSink(&got)
		for _, piece := range []string{text[:cut/2], text[cut/2 : cut]} {
			n, err := s.Write([]byte(piece))
			require.NoError(t, err)
			require.Equal(t, len(piece), n)
		}
		s.repeat()
		for i := range text {
			_, err := s.Write([]byte{text[i]})
			require.NoError(t, err)
		}
		require.Equal(t, text, got.String())
		require.True(t, s.whole())
	}
}

// TestSinkFillsAGap: the log of an engine that was killed lacks the line that had not ended. What
// does not fit to the rest is not called whole.
func TestSinkFillsAGap(t *testing.T) {
	long := strings.Repeat("x", maxRest+1)
	for name, test := range map[string]struct {
		seen, log string
		want      string
		whole     bool
	}{
		"nothing was seen":            {"", "a\nb\n", "a\nb\n", true},
		"all was seen":                {"a\nb\n", "a\nb\n", "a\nb\n", true},
		"whole lines":                 {"a\n", "a\nb\n", "a\nb\n", true},
		"a part of a line":            {"a\nscore: 0.", "a\nscore: 0.5\n", "a\nscore: 0.5\n", true},
		"a lost part of a line":       {"a\nscore: 0.", "a\n5\nb\n", "a\nscore: 0.5\nb\n", true},
		"... that begins alike":       {"a\nscore: 0.", "a\nscrew\n", "a\nscore: 0.screw\n", true},
		"a lost first line":           {"score: 0.", "5\n", "score: 0.5\n", true},
		"a lost line":                 {"a\nb\n", "a\nc\nd\n", "a\nb\nd\n", false},
		"a log that lost its end":     {"a\nb\n", "a\n", "a\nb\n", false},
		"a log of somebody else":      {"a\nb\nc", "x\ny\nz\n", "a\nb\nc\n", false},
		"a long line":                 {"a\n" + long, "a\n" + long + "y\n", "a\n" + long + "y\n", true},
		"a lost part of a long line":  {"a\n" + long, "a\ny" + long, "a\n" + long + "x", false},
		"an empty log, after a start": {"a", "", "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 3, 1 << 20} {
				var got strings.Builder
				s := newSink(&got)
				for piece := range slices.Chunk([]byte(test.seen), size) {
					_, _ = s.Write(piece)
				}
				for range 2 { // a second connection that brings nothing new
					s.repeat()
					for piece := range slices.Chunk([]byte(test.log), size) {
						_, _ = s.Write(piece)
					}
					require.Equal(t, test.want, got.String(), size)
					if strings.Contains(name, "lost part") || strings.Contains(name, "alike") || strings.Contains(name, "first line") {
						break // the log is another text from now on
					}
				}
				require.Equal(t, test.whole, s.whole(), size)
			}
		})
	}
}

// TestSinkOfAFailingWriter: the program does not notice.
func TestSinkOfAFailingWriter(t *testing.T) {
	for _, to := range []io.Writer{nil, iotestWriter{}} {
		s := newSink(to)
		for range 2 {
			n, err := s.Write([]byte("abc"))
			require.NoError(t, err)
			require.Equal(t, 3, n)
		}
	}
}

type iotestWriter struct{}

func (iotestWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }
