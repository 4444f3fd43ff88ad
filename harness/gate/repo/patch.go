package repo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
)

const (
	// maxText bounds a file of which lines are shown, maxPatch the whole patch.
	maxText  = 1 << 20
	maxPatch = 16 << 20
)

// patch is a patch in the form of git.
type patch struct {
	out bytes.Buffer
	// left counts files that are not shown for want of room.
	left int
}

// side is a file before or after.
type side struct {
	root *os.Root
	compared
}

// add writes the difference of two files.
func (p *patch) add(name string, old, now side) error {
	if p.out.Len() >= maxPatch {
		p.left++
		return nil
	}
	// A file that became a link is one that went and one that came.
	if old.mode != modeNone && now.mode != modeNone && (old.mode == modeLink) != (now.mode == modeLink) {
		if err := p.add(name, old, side{}); err != nil {
			return err
		}
		return p.add(name, side{}, now)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "diff --git %s %s\n", prefixed("a/", name), prefixed("b/", name))
	switch {
	case old.mode == modeNone:
		fmt.Fprintf(&text, "new file mode %s\n", now.mode)
	case now.mode == modeNone:
		fmt.Fprintf(&text, "deleted file mode %s\n", old.mode)
	case old.mode != now.mode:
		fmt.Fprintf(&text, "old mode %s\nnew mode %s\n", old.mode, now.mode)
	}
	if err := writeContent(&text, name, old, now); err != nil {
		return err
	}
	if p.out.Len()+text.Len() > maxPatch {
		p.left++
		return nil
	}
	p.out.Write(text.Bytes())
	return nil
}

// prefixed is a path of a patch.
func prefixed(prefix, name string) string {
	if text := shown(name); text != name {
		return `"` + prefix + text[1:]
	}
	return prefix + name
}

func (p *patch) bytes() []byte {
	if p.left > 0 {
		fmt.Fprintf(&p.out, "# %d more files differ; the patch is cut at %d bytes\n", p.left, maxPatch)
	}
	return p.out.Bytes()
}

func writeContent(to *bytes.Buffer, name string, old, now side) error {
	if old.mode != modeNone && now.mode != modeNone && old.sum == now.sum {
		return nil // only the mode
	}
	a, ok, err := old.text(name)
	if err != nil {
		return err
	}
	b, also, err := now.text(name)
	if err != nil {
		return err
	}
	from, into := prefixed("a/", name), prefixed("b/", name)
	if old.mode == modeNone {
		from = "/dev/null"
	}
	if now.mode == modeNone {
		into = "/dev/null"
	}
	if !ok || !also {
		fmt.Fprintf(to, "Binary files %s and %s differ\n", from, into)
		return nil
	}
	if len(a)+len(b) == 0 {
		return nil
	}
	fmt.Fprintf(to, "--- %s\n+++ %s\n", named(from), named(into))
	writeHunks(to, lines(a), lines(b))
	return nil
}

// named ends a path with a space in it as git does, so that it is not cut there.
func named(name string) string {
	if strings.Contains(name, " ") {
		return name + "\t"
	}
	return name
}

// text is what a patch shows of a file; false if it is binary or too long.
func (s side) text(name string) ([]byte, bool, error) {
	switch {
	case s.mode == modeNone:
		return nil, true, nil
	case s.mode == modeLink:
		return []byte(s.target), true, nil
	case s.size > maxText:
		return nil, false, nil
	}
	file, _, err := fsx.OpenIn(s.root, name)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxText+1))
	if err != nil {
		return nil, false, err
	}
	if sumOf(text) != s.sum {
		return nil, false, errors.New("changed while it was compared")
	}
	return text, utf8.Valid(text) && bytes.IndexByte(text, 0) < 0, nil
}

// lines keeps line ends, and says as git does where the last one is missing.
func lines(text []byte) []string {
	var all []string
	for line := range bytes.Lines(text) {
		all = append(all, string(line))
	}
	if n := len(all); n > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		all[n-1] += "\n\\ No newline at end of file\n"
	}
	return all
}
