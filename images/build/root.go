package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/jsonmessage"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/store"
)

// A RootFunc makes a root file system and writes it to w as one uncompressed tar archive.
// It reports its steps in lines to progress, which is safe for concurrent use. It returns
// only after every process that it started has ended, and leaves nothing on disk, also when
// ctx ends.
type RootFunc func(ctx context.Context, b images.Bootstrap, w io.Writer, progress func(line string)) error

// importRoot makes the root file system and imports it while it is being written, so that no
// copy of it lies on disk.
func (m *maker) importRoot(ctx context.Context) error {
	b := *m.entry.Base.Bootstrap
	m.progress.Line("bootstrap", fmt.Sprintf("debian %s with %d packages (about a minute)", b.Suite, len(b.Packages)))
	rootErr, importErr := store.Pipe(ctx, func(ctx context.Context, w io.Writer) error {
		return m.opts.Root(ctx, b, w, func(line string) { m.progress.Line("bootstrap", line) })
	}, func(tar io.Reader) error { return m.importTar(ctx, tar) })
	switch {
	case ctx.Err() != nil:
		return m.failed(ctx, "bootstrap", ctx.Err())
	case rootErr != nil:
		return m.failed(ctx, "bootstrap", rootErr)
	case importErr != nil:
		return m.failed(ctx, "import", importErr)
	}
	m.progress.Line("import", "root file system is in the engine")
	return nil
}

// importTar imports one tar archive under the tag of the base.
func (m *maker) importTar(ctx context.Context, tar io.Reader) error {
	body, err := m.eng.ImageImport(ctx, image.ImportSource{Source: tar, SourceName: "-"}, m.entry.BaseTag(), image.ImportOptions{
		Message:  "evalbox image ensure " + m.entry.Name,
		Platform: "linux/" + runtime.GOARCH,
	})
	if err != nil {
		return err
	}
	defer body.Close()
	return store.StreamError(jsonmessage.DisplayJSONMessagesStream(body, io.Discard, 0, false, nil))
}

const (
	tailLines     = 12
	tailLineBytes = 400
)

// A logTail keeps the last lines of the output of a program, and reports lines such as
// "I: installing packages..." as progress. Its memory is bounded: longer lines are cut. It is
// safe for concurrent use.
type logTail struct {
	progress func(line string)

	mu    sync.Mutex
	part  []byte   // the unfinished line, guarded by mu
	lines []string // guarded by mu
	// reason is the first line that says that something failed; guarded by mu.
	reason string
}

// reasonPattern matches a line with which apt, mmdebstrap, pip or a shell reports a failure.
// mmdebstrap repeats each failure as its own, which says less.
var (
	reasonPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:E: |ERROR: |[Ee]rror: |[Ff]atal: |FATAL: |dpkg: error |[\w./-]+: (?:\d+: )?.*not found$|.*: No module named )`)
	})
	repeatPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^E: (?:mmdebstrap failed|run_|.* failed: process exited|.*exited with)`)
	})
)

// failed returns an error whose first line is what failed and the line that says why; the
// last lines of the output follow.
func (t *logTail) failed(what string) error {
	lines := t.String()
	t.mu.Lock()
	defer t.mu.Unlock()
	reason := t.reason
	if reason == "" && len(t.lines) > 0 {
		reason = t.lines[len(t.lines)-1]
	}
	if reason == "" {
		return errors.New(what)
	}
	for _, prefix := range []string{"E: ", "ERROR: "} {
		reason = strings.TrimPrefix(reason, prefix)
	}
	return fmt.Errorf("%s (%s)\n%s", reason, what, lines)
}

// Write takes all of p, always.
func (t *logTail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		t.part = append(t.part, line[:min(len(line), tailLineBytes-len(t.part))]...)
		if ended {
			t.finishLine()
		}
		rest = after
	}
	return len(p), nil
}

// finishLine moves the finished line to the kept ones. The caller holds mu.
func (t *logTail) finishLine() {
	line := strings.ToValidUTF8(strings.TrimSpace(string(t.part)), "�")
	t.part = t.part[:0]
	if line == "" || strings.HasPrefix(line, "---> ") || strings.HasPrefix(line, "Removing intermediate container ") {
		return
	}
	if info, ok := strings.CutPrefix(line, "I: "); ok && strings.HasSuffix(info, "...") {
		t.progress(info)
	}
	if t.reason == "" && reasonPattern().MatchString(line) && !repeatPattern().MatchString(line) {
		t.reason = line
	}
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
}

// String returns the last lines, each with two spaces before it.
func (t *logTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.part) > 0 {
		t.finishLine()
	}
	return "  " + strings.Join(t.lines, "\n  ")
}
