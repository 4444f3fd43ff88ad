package normalize

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/testreport"
)

// logWriter writes a log of several gates and counts its lines.
type logWriter struct {
	w     *bufio.Writer
	lines int
	// open says that the last line has no end yet.
	open bool
	// ours are the lines that are not of the gates.
	ours map[int]bool
	// sum is the hash of what was written since the present gate began.
	sum hash.Hash
}

// written is what is known of a log that was written.
type written struct {
	// ours are the lines, from 1, that are not of the gates.
	ours map[int]bool
	// sums are the SHA-256 of each gate's part, in order.
	sums []string
}

func (l *logWriter) Write(p []byte) (int, error) {
	l.lines += bytes.Count(p, []byte{'\n'})
	if len(p) > 0 {
		l.open = p[len(p)-1] != '\n'
	}
	l.sum.Write(p)
	return l.w.Write(p)
}

// say writes a line of ours, at the beginning of a line.
func (l *logWriter) say(format string, args ...any) error {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ") + "\n"
	if l.open {
		text = "\n" + text
	}
	_, err := io.WriteString(l, text)
	l.ours[l.lines] = true
	return err
}

// logOf writes the normalized log of all gates in their order (RT-06: lines keep theirs),
// each with its command, both streams and how it ended.
func logOf(ctx context.Context, root *os.Root, m evidence.RunManifest, ran []*raw, n *Normalizer, w io.Writer) (written, error) {
	l := &logWriter{w: bufio.NewWriterSize(w, 256<<10), ours: map[int]bool{}, sum: sha256.New()}
	done := written{ours: l.ours}
	for i, r := range ran {
		l.sum.Reset()
		if err := l.say("$ %s", m.Gates[i].Cmd); err != nil {
			return done, err
		}
		var err error
		if r == nil {
			err = l.say("# did not run")
		} else {
			err = r.log(ctx, root, n, l)
		}
		if err != nil {
			return done, err
		}
		done.sums = append(done.sums, hex.EncodeToString(l.sum.Sum(nil)))
	}
	return done, l.w.Flush()
}

// log writes the log of one gate.
func (r *raw) log(ctx context.Context, root *os.Root, n *Normalizer, l *logWriter) error {
	for _, name := range []string{"stdout", "stderr"} {
		if err := l.say("# %s", name); err != nil {
			return err
		}
		if err := r.copyStream(ctx, root, n, l, name); err != nil {
			return fmt.Errorf("%s of gate %d: %w", name, r.gate.Index, err)
		}
	}
	whole, err := r.complete(ctx, root)
	if err != nil {
		return err
	}
	if !whole {
		if err := l.say("# bytes are missing: the output was longer than what is kept, or its end was not seen"); err != nil {
			return err
		}
	}
	if code := r.exitCode(); code != nil {
		return l.say("# %s, exit code %d", r.result.Status, *code)
	}
	return l.say("# %s, no exit code", r.result.Status)
}

func (r *raw) copyStream(ctx context.Context, root *os.Root, n *Normalizer, l *logWriter, name string) error {
	s, err := r.stream(ctx, root, name+".log")
	if err != nil || s == nil {
		return err
	}
	defer s.close()
	if name == "stderr" || !testreport.MayHaveEvents(r.gate) {
		return n.Copy(l, s)
	}
	// Events of go test are told as the text that they carry.
	read, write := io.Pipe()
	go func() { write.CloseWithError(testreport.CopyText(write, s)) }()
	err = n.Copy(l, read)
	read.CloseWithError(err) // ends the writer if the log could not be written
	return err
}
