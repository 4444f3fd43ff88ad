package invoke

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// errLineTooLong means that a line has more bytes than may be kept of one.
var errLineTooLong = errors.New("line too long")

// lines reads physical lines, which end with LF, CR LF or CR, as text files do. It holds
// one line at a time.
type lines struct {
	r   *bufio.Reader
	max int
	// n is the number of the line that was read last.
	n   int64
	buf []byte
	// afterCR says that an LF that comes next belongs to the line before.
	afterCR bool
}

func newLines(r io.Reader, most int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), max: most}
}

// next is the next line without its end, valid until the next call; io.EOF at the end.
func (l *lines) next() ([]byte, error) {
	l.buf = l.buf[:0]
	l.n++
	for began := false; ; {
		if _, err := l.r.Peek(1); err != nil {
			if errors.Is(err, io.EOF) && began {
				return l.buf, nil
			}
			return nil, err
		}
		piece, _ := l.r.Peek(l.r.Buffered()) // what is buffered is there
		if l.afterCR {
			l.afterCR = false
			if piece[0] == '\n' {
				_, _ = l.r.Discard(1)
				continue
			}
		}
		began = true
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			end = len(piece)
		}
		if cr := bytes.IndexByte(piece[:end], '\r'); cr >= 0 {
			end = cr
		}
		if len(l.buf)+end > l.max {
			return nil, errLineTooLong
		}
		l.buf = append(l.buf, piece[:end]...)
		if end == len(piece) {
			_, _ = l.r.Discard(end)
			continue
		}
		l.afterCR = piece[end] == '\r'
		_, _ = l.r.Discard(end + 1)
		return l.buf, nil
	}
}
