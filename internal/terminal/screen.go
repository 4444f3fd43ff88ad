package terminal

import (
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rivo/uniseg"
)

// A Screen is a terminal that the streams of a program share with our own messages. Its
// methods, and those of its writers, may be called concurrently.
type Screen struct {
	// width is the number of columns; 0 for a terminal on which nothing is redrawn.
	width func() int

	mu      sync.Mutex
	streams []*stream
	// holder is the stream whose unfinished line the terminal shows; nil at the beginning of a line.
	holder *stream
}

const (
	// redraw is the least time between two states of a line that is redrawn.
	redraw = 100 * time.Millisecond
	// maxLine bounds the columns of a line that is redrawn, and maxMarks the bytes of one of them.
	maxLine, maxMarks = 4096, 32
)

// NewScreen returns the screen of a terminal with a number of columns, which may change.
func NewScreen(width func() int) *Screen { return &Screen{width: width} }

// Stream returns a writer to out that makes text harmless as a [Writer] does, but redraws a
// line in place when a carriage return begins it again, as a progress bar does: at most ten
// times a second, and not beyond the width of the terminal. The last state of the line is
// always shown, and all of it. The states of a line that holds other control characters, or is
// too long to be redrawn, get a line each.
func (s *Screen) Stream(out io.Writer) io.Writer { return s.add(&stream{out: out}) }

// Raw returns a writer that passes bytes on unchanged.
func (s *Screen) Raw(out io.Writer) io.Writer { return s.add(&stream{out: out, raw: true}) }

func (s *Screen) add(st *stream) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.screen = s
	s.streams = append(s.streams, st)
	return st
}

// Messages returns a writer for our own lines. They begin on a line of their own.
func (s *Screen) Messages(out io.Writer) io.Writer { return messages{s, out} }

type messages struct {
	screen *Screen
	out    io.Writer
}

func (m messages) Write(p []byte) (int, error) {
	m.screen.mu.Lock()
	defer m.screen.mu.Unlock()
	if err := m.screen.leave(m.out); err != nil {
		return 0, err
	}
	return m.out.Write(p)
}

// End shows the last state of all lines, and ends an unfinished one on out.
func (s *Screen) End(out io.Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if err := st.end(); err != nil {
			return err
		}
	}
	return s.leave(out)
}

// leave goes to the beginning of a line: a line that can be redrawn is taken away until it is,
// and another one is ended. s.mu is held.
func (s *Screen) leave(out io.Writer) error {
	held := s.holder
	switch {
	case held == nil:
		return nil
	case held.bar:
		return held.erase()
	}
	held.plain, s.holder = true, nil
	_, err := io.WriteString(out, "\n")
	return err
}

// cell is a column of a line: a character with its marks. The second column of a wide
// character is empty.
type cell struct{ text string }

// stream is a writer to a screen. The mutex of the screen protects it.
type stream struct {
	screen *Screen
	out    io.Writer
	raw    bool
	decoder

	// line is what the unfinished line shows, and col the column of the cursor in it. old is
	// the line before the last carriage return.
	line, old []cell
	col       int
	// cr says that the last character was a carriage return, bar that the line is redrawn,
	// and plain that it cannot be.
	cr, bar, plain bool
	// shown is how many columns of the line the terminal shows; dirty says that they are not
	// the latest state, which was drawn at last.
	shown int
	dirty bool
	last  time.Time
	timer *time.Timer
	buf   []byte
}

// Write implements [io.Writer].
func (s *stream) Write(p []byte) (int, error) {
	s.screen.mu.Lock()
	defer s.screen.mu.Unlock()
	if s.raw {
		if len(p) > 0 {
			s.screen.holder = s
			if p[len(p)-1] == '\n' {
				s.screen.holder = nil
			}
		}
		return s.out.Write(p)
	}
	s.decode(p, s.rune)
	if s.dirty && s.timer == nil {
		if pause := redraw - time.Since(s.last); pause > 0 {
			s.later(pause)
		} else if err := s.draw(false); err != nil {
			return len(p), err
		}
	}
	return len(p), s.emit()
}

// end shows the rest of the text.
func (s *stream) end() error {
	s.rest(s.rune)
	if s.cr && s.bar {
		s.cr = false
	} else if s.cr {
		s.newline()
	}
	if s.dirty || s.bar {
		if err := s.draw(true); err != nil {
			return err
		}
	}
	s.bar = false // nothing takes it away any more
	s.stop()
	return s.emit()
}

// rune takes one character, or one invalid byte when size is 1 and r RuneError.
func (s *stream) rune(r rune, size int, first byte) {
	if s.cr && r != '\n' {
		s.again()
	}
	switch s.cr = r == '\r'; {
	case s.cr:
		return
	case r == '\n':
		s.newline()
		return
	}
	shown := string(appendRune(nil, r, size, first))
	if r != '\t' && shown != string(r) {
		s.giveUp()
	}
	if !s.bar {
		s.put([]byte(shown))
	}
	if !s.plain {
		s.place(r, shown)
	}
}

// place puts a character into the line at the cursor.
func (s *stream) place(r rune, shown string) {
	width := 0
	if r == '\t' {
		for next := s.col/8*8 + 8; s.col < next; s.col++ {
			s.extend(s.col + 1)
		}
	} else if width = uniseg.StringWidth(shown); width == 0 {
		lead := s.lead(s.col - 1)
		if lead < 0 || len(s.line[lead].text)+len(shown) > maxMarks {
			s.fallBack(shown)
			return
		}
		s.line[lead].text += shown
	}
	if width > 0 {
		s.extend(s.col + width)
		for i := range width {
			s.clear(s.col + i)
		}
		s.line[s.col].text = shown
		for i := 1; i < width; i++ {
			s.line[s.col+i].text = ""
		}
		s.col += width
	}
	s.dirty = s.bar
	if limit := s.screen.width(); len(s.line) >= maxLine || !s.bar && len(s.line) >= limit {
		s.fallBack("")
	}
}

// fallBack ends the redrawing of a line, to which a character is still to be added.
func (s *stream) fallBack(more string) {
	wasBar := s.bar
	s.giveUp()
	if wasBar {
		s.put([]byte(more))
	}
}

// lead is the column of the character that covers a column; -1 without one.
func (s *stream) lead(col int) int {
	for col > 0 && col < len(s.line) && s.line[col].text == "" {
		col--
	}
	return min(col, len(s.line)-1)
}

// clear takes the character away that covers a column: half of a wide one cannot be shown.
func (s *stream) clear(col int) {
	first := s.lead(col)
	for i := first; i < len(s.line) && (i == first || s.line[i].text == ""); i++ {
		s.line[i].text = " "
	}
}

// extend gives the line at least so many columns.
func (s *stream) extend(columns int) {
	for len(s.line) < columns {
		s.line = append(s.line, cell{" "})
	}
}

// again begins the line once more, after a carriage return with text behind it.
func (s *stream) again() {
	if s.plain || s.screen.width() < 2 {
		s.newline()
		return
	}
	if !s.bar {
		s.shown = len(s.line)
	}
	s.old, s.col, s.bar = slices.Clone(s.line), 0, true
}

// giveUp makes the line plain. A state that was redrawn stays, on a line of its own.
func (s *stream) giveUp() {
	if s.bar {
		begun := slices.Clone(s.line[:s.col])
		s.line = s.old
		s.claim()
		s.redrawn(len(s.line))
		if len(s.line) > 0 {
			s.buf = append(s.buf, '\n')
		}
		s.buf = append(s.buf, textOf(begun)...)
		s.bar, s.dirty, s.shown = false, false, 0
		s.stop()
	}
	s.plain, s.line, s.old, s.col = true, nil, nil, 0
}

// newline ends the line; one that was redrawn shows its last state whole.
func (s *stream) newline() {
	s.claim()
	if s.bar {
		s.redrawn(len(s.line))
	}
	s.buf = append(s.buf, '\n')
	s.line, s.old, s.col = s.line[:0], nil, 0
	s.bar, s.plain, s.cr, s.dirty, s.shown = false, false, false, false, 0
	s.stop()
	s.screen.holder = nil
	for _, other := range s.screen.streams {
		if other != s && other.dirty && other.timer == nil {
			other.later(redraw)
		}
	}
}

// put adds text to the output.
func (s *stream) put(text []byte) {
	if len(text) == 0 {
		return
	}
	s.claim()
	s.buf = append(s.buf, text...)
}

// claim makes the terminal show this stream: a line of another one that is redrawn is taken
// away. An unfinished line stays, and neither of the two can be redrawn then.
func (s *stream) claim() {
	other := s.screen.holder
	s.screen.holder = s
	switch {
	case other == nil || other == s:
		return
	case other.bar:
		s.screen.holder = other
		_ = other.erase() // the next write of that stream reports it
		s.screen.holder = s
	case s.bar:
		s.buf = append(s.buf, '\n')
		other.plain, s.shown = true, 0
	default:
		other.plain, s.plain, s.line = true, true, nil
	}
}

// erase takes the line away until it is drawn again.
func (s *stream) erase() error {
	err := s.emit()
	if s.shown > 0 {
		_, err = io.WriteString(s.out, "\r"+strings.Repeat(" ", s.shown)+"\r")
	}
	s.shown, s.dirty, s.screen.holder = 0, true, nil
	if s.timer == nil {
		s.later(redraw)
	}
	return err
}

// draw shows the latest state of the line, whole or as much as the terminal has columns for.
// It waits while another stream has an unfinished line, unless this is the end.
func (s *stream) draw(whole bool) error {
	if other := s.screen.holder; other != nil && other != s && !other.bar && !whole {
		return nil
	}
	columns := len(s.line)
	if !whole {
		columns = min(columns, max(s.screen.width()-1, 0))
		columns = s.whole(columns)
	}
	s.claim()
	s.redrawn(columns)
	s.dirty, s.last = false, time.Now()
	return s.emit()
}

// whole is a number of columns that does not cut a wide character in two.
func (s *stream) whole(columns int) int {
	for columns > 0 && columns < len(s.line) && s.line[columns].text == "" {
		columns--
	}
	return columns
}

// redrawn adds the line to the output, over what the terminal shows of it.
func (s *stream) redrawn(columns int) {
	if s.shown > 0 {
		s.buf = append(s.buf, '\r')
	}
	s.buf = append(s.buf, textOf(s.line[:columns])...)
	s.buf = append(s.buf, strings.Repeat(" ", max(s.shown-columns, 0))...)
	if columns == 0 && s.shown > 0 {
		s.buf = append(s.buf, '\r')
	}
	s.shown = columns
}

func textOf(line []cell) string {
	var text strings.Builder
	for _, c := range line {
		text.WriteString(c.text)
	}
	return text.String()
}

// later draws the line after a pause.
func (s *stream) later(pause time.Duration) {
	var timer *time.Timer
	timer = time.AfterFunc(pause, func() {
		s.screen.mu.Lock()
		defer s.screen.mu.Unlock()
		if s.timer != timer {
			return
		}
		s.timer = nil
		if s.dirty && s.bar {
			_ = s.draw(false) // the next write reports it
		}
	})
	s.timer = timer
}

func (s *stream) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

func (s *stream) emit() error {
	if len(s.buf) == 0 {
		return nil
	}
	_, err := s.out.Write(s.buf)
	s.buf = s.buf[:0]
	return err
}
