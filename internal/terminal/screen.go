package terminal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

const (
	// redraw is the least time between two drawings of a line in place.
	redraw = 100 * time.Millisecond
	// maxLine bounds the line that can be drawn in place, in columns.
	maxLine = 4096
	// maxCell bounds the text of one cell, in bytes: marks can be piled up without end.
	maxCell = 32
	// usualWidth is the width of a terminal that does not know its own, in columns.
	usualWidth = 80
	tabStop    = 8
)

// A Screen shows the output of programs at a terminal. Several streams may share it, and
// our own messages. What the streams write is made harmless as by [Text], except that a carriage
// return overwrites the line, as it does without a Screen: such a line is drawn in place, at
// most ten times a second and cut to the width of the terminal. When it ends, it is printed
// once, whole. The Screen itself sends carriage returns, newlines and tabs, and no other control.
//
// A line that is wider than the terminal is never drawn over: there a carriage return begins
// a new line. So it is where another stream, or a message, follows a line drawn in place.
//
// The lines do not depend on how the text is cut into pieces. Methods may be called concurrently.
type Screen struct {
	width func() int

	mu      sync.Mutex
	streams []*stream
	last    io.Writer // where the current line was written
	from    *stream   // the stream that wrote last, nil for a message
	line    line
	// cr says that the last character was a carriage return: a newline may follow it.
	cr bool
	// inPlace says that the line was overwritten. It is then drawn and not streamed.
	inPlace bool
	// midLine says that the terminal's cursor is not at the begin of a line.
	midLine bool
	// over is the number of columns that a new drawing must clear.
	over  int
	dirty bool // the drawing is older than the line
	drawn time.Time
	timer *time.Timer
	buf   []byte
	err   error // of a drawing that a timer began
}

// NewScreen returns a Screen for a terminal. width returns the terminal's number of columns, 0 if
// that is unknown.
func NewScreen(width func() int) *Screen { return &Screen{width: width} }

// Stream returns a writer for the output of a program, which goes to out. The writer holds back
// an unfinished character, and the drawing of a line, until [Screen.End]. It reports an error of
// out, and then has written nothing that the caller should write again.
func (s *Screen) Stream(out io.Writer) io.Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &stream{screen: s, out: out}
	s.streams = append(s.streams, w)
	return w
}

// Raw returns a writer that passes every byte on to out. It shares the Screen with other raw
// writers and messages.
func (s *Screen) Raw(out io.Writer) io.Writer { return &raw{s, out} }

// Messages returns a writer for our own messages. They begin on a line of their own.
func (s *Screen) Messages(out io.Writer) io.Writer { return &messages{s, out} }

// End shows all that was held back, and ends an unfinished line.
func (s *Screen) End() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, w := range s.streams {
		if len(w.text.pending) > 0 {
			errs = append(errs, s.enter(w))
			w.text.flush(s.put)
		}
	}
	s.endLine()
	return errors.Join(append(errs, s.emit())...)
}

type stream struct {
	screen *Screen
	out    io.Writer
	text   decoder
}

func (w *stream) Write(p []byte) (int, error) {
	s := w.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(w); err != nil {
		return len(p), err
	}
	w.text.decode(p, s.put)
	s.draw(false)
	return len(p), s.emit()
}

// enter makes w the stream that writes. It ends a line that another one has drawn in place.
func (s *Screen) enter(w *stream) (err error) {
	if s.from != w {
		if s.inPlace || s.cr {
			s.endLine()
		}
		err = s.emit()
	}
	s.from, s.last = w, w.out
	return err
}

type raw struct {
	screen *Screen
	out    io.Writer
}

func (w *raw) Write(p []byte) (int, error) {
	s := w.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = w.out
	if len(p) > 0 {
		s.midLine = p[len(p)-1] != '\n'
	}
	return w.out.Write(p)
}

type messages struct {
	screen *Screen
	out    io.Writer
}

func (w *messages) Write(p []byte) (int, error) {
	s := w.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLine()
	if err := s.emit(); err != nil {
		return 0, err
	}
	return w.out.Write(p)
}

// endLine ends the line. One that was drawn in place and shows nothing at last leaves none.
func (s *Screen) endLine() {
	s.cr = false
	if s.inPlace {
		s.final()
	}
	if s.midLine {
		s.newline()
	}
	s.line.clear()
	s.inPlace, s.from = false, nil
}

// put takes one character of a stream, and what is shown for it.
func (s *Screen) put(r rune, shown []byte) {
	if s.cr && r != '\n' {
		s.carriageReturn()
	}
	switch s.cr = r == '\r'; {
	case s.cr:
		return
	case r == '\n':
		if s.inPlace {
			s.final()
		}
		s.newline()
		s.line.clear()
		s.inPlace = false
		return
	}
	s.line.put(shown)
	switch {
	case !s.inPlace:
		s.buf = append(s.buf, shown...)
		s.midLine = true
	case s.line.long:
		s.stop() // it cannot be drawn any more: the rest follows as it comes
		s.replace(strings.Join(s.line.cells, ""), len(s.line.cells))
		s.inPlace = false
	default:
		s.dirty = true
	}
}

// carriageReturn moves to the begin of the line, if all of it is still in one row.
func (s *Screen) carriageReturn() {
	switch {
	case s.inPlace:
	case s.line.long || len(s.line.cells) >= s.columns():
		s.newline()
		s.line.clear()
	default:
		s.over = len(s.line.cells)
	}
	s.inPlace, s.line.col = true, 0
}

func (s *Screen) newline() {
	s.buf = append(s.buf, '\n')
	s.midLine, s.over, s.dirty = false, 0, false
}

// final shows the whole line in place of its last drawing.
func (s *Screen) final() {
	s.stop()
	if n := len(s.line.cells); s.dirty || s.over != n {
		s.replace(s.line.text(n), n)
	}
}

// draw shows what of the line fits into the width, now or, if the last drawing is recent and
// this is not its time, later.
func (s *Screen) draw(now bool) {
	if !s.inPlace || !s.dirty || s.timer != nil {
		return
	}
	if wait := redraw - time.Since(s.drawn); wait > 0 && !now {
		s.timer = time.AfterFunc(wait, s.drawLater)
		return
	}
	s.drawn = time.Now()
	n := s.line.fit(s.columns() - 1) // a full row would begin the next one
	s.replace(s.line.text(n), n)
}

func (s *Screen) drawLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		return // the line has ended meanwhile
	}
	s.timer = nil
	s.draw(true)
	if err := s.emit(); err != nil && s.err == nil {
		s.err = err
	}
}

// stop gives up a drawing that is to come.
func (s *Screen) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// replace clears the columns of the last drawing with spaces, which every terminal knows, and
// shows text of n columns there.
func (s *Screen) replace(text string, n int) {
	if s.over > 0 {
		s.buf = append(s.buf, '\r')
		s.buf = append(s.buf, bytes.Repeat([]byte{' '}, s.over)...)
		s.buf = append(s.buf, '\r')
	}
	s.buf = append(s.buf, text...)
	s.over, s.dirty, s.midLine = n, false, text != ""
}

func (s *Screen) columns() int {
	if n := s.width(); n > 0 {
		return n
	}
	return usualWidth
}

// emit writes what is to be shown.
func (s *Screen) emit() error {
	err := s.err
	s.err = nil
	if err == nil && len(s.buf) > 0 {
		_, err = s.last.Write(s.buf)
	}
	s.buf = s.buf[:0]
	return err
}

// A line is what a terminal of unbounded width shows in one line.
type line struct {
	cells []string // the text of each column, empty for the second column of a wide character
	col   int      // where the next character goes
	long  bool     // it has more than maxLine columns, which are not kept
}

func (l *line) clear() { l.cells, l.col, l.long = l.cells[:0], 0, false }

// put writes the text that is shown for one character.
func (l *line) put(shown []byte) {
	if l.long {
		return
	}
	for len(shown) > 0 {
		r, size := utf8.DecodeRune(shown)
		l.rune(r, shown[:size])
		shown = shown[size:]
	}
}

func (l *line) rune(r rune, text []byte) {
	if r == '\t' { // it moves, and overwrites nothing
		l.col += tabStop - l.col%tabStop
		for len(l.cells) < l.col {
			l.cells = append(l.cells, " ")
		}
		l.long = len(l.cells) > maxLine
		return
	}
	n := columns(r, text)
	if n == 0 {
		if at := l.lead(l.col - 1); at >= 0 && len(l.cells[at])+len(text) <= maxCell {
			l.cells[at] += string(text)
			return
		}
		n = 1
	}
	l.blank(l.col)
	l.blank(l.col + n)
	for len(l.cells) < l.col+n {
		l.cells = append(l.cells, "")
	}
	l.cells[l.col] = string(text)
	for i := 1; i < n; i++ {
		l.cells[l.col+i] = ""
	}
	l.col += n
	l.long = len(l.cells) > maxLine
}

// lead is the column where the character begins that covers the column at; -1 for none.
func (l *line) lead(at int) int {
	for at >= 0 && l.cells[at] == "" {
		at--
	}
	return at
}

// blank leaves spaces of a wide character whose second half is at a column that something
// else is written to, or whose first half is before that.
func (l *line) blank(at int) {
	if at >= len(l.cells) || l.cells[at] != "" {
		return
	}
	for i := l.lead(at); i < len(l.cells) && (i <= at || l.cells[i] == ""); i++ {
		l.cells[i] = " "
	}
}

// fit is the number of columns, at most n, that hold whole characters.
func (l *line) fit(n int) int {
	if n >= len(l.cells) {
		return len(l.cells)
	}
	n = max(n, 1)
	for n > 0 && n < len(l.cells) && l.cells[n] == "" {
		n--
	}
	return n
}

// text is the first n columns, without spaces at the end.
func (l *line) text(n int) string {
	return strings.TrimRight(strings.Join(l.cells[:n], ""), " ")
}

// columns is how many columns a character takes, at most: terminals differ about characters
// that combine.
func columns(r rune, text []byte) int {
	if r < utf8.RuneSelf {
		return 1
	}
	return uniseg.StringWidth(string(text))
}
