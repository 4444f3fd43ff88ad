package testreport

import (
	"bufio"
	"fmt"
	"io"
	"unicode/utf8"
)

// xmlLimits bound a report, a tag with its attributes, and a text, comment or CDATA
// section, in bytes. The decoder holds each tag and text in memory.
type xmlLimits struct{ report, tag, text int }

var usualLimits = xmlLimits{report: 64 << 20, tag: 1 << 20, text: 16 << 20}

// xmlSource reads a report for the decoder, within the limits. Bytes and characters that
// XML forbids become U+FFFD: programs print them, and few report writers escape them.
type xmlSource struct {
	r       *bufio.Reader
	limits  xmlLimits
	read    int
	buf     [utf8.UTFMax]byte
	pending []byte // of buf
	// token counts the bytes of the current token, and start has the first of them.
	token int
	start []byte
	last  byte
}

func newXMLSource(r io.Reader, limits xmlLimits) *xmlSource {
	return &xmlSource{r: bufio.NewReader(r), limits: limits}
}

// nextToken starts a new token. If text was before it, its '<' was read already.
func (s *xmlSource) nextToken() {
	s.token, s.start = 0, s.start[:0]
	if s.last == '<' {
		s.start = append(s.start, '<')
	}
}

// ReadByte makes the decoder read byte by byte, so that no token is read ahead.
func (s *xmlSource) ReadByte() (byte, error) {
	if len(s.pending) == 0 {
		r, size, err := s.r.ReadRune()
		if err != nil {
			return 0, err
		}
		if s.read += size; s.read > s.limits.report {
			return 0, fmt.Errorf("it has more than %d bytes", s.limits.report)
		}
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			r = utf8.RuneError
		}
		s.pending = s.buf[:utf8.EncodeRune(s.buf[:], r)]
	}
	b := s.pending[0]
	s.pending, s.last = s.pending[1:], b
	if len(s.start) < 3 {
		s.start = append(s.start, b)
	}
	limit := s.limits.tag
	if isText := s.start[0] != '<'; isText || len(s.start) == 3 && s.start[1] == '!' && (s.start[2] == '[' || s.start[2] == '-') {
		limit = s.limits.text
	}
	if s.token++; s.token > limit {
		return 0, fmt.Errorf("a tag or text has more than %d bytes", limit)
	}
	return b, nil
}

// Read reads one byte; the decoder calls ReadByte.
func (s *xmlSource) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b, err := s.ReadByte()
	if err != nil {
		return 0, err
	}
	p[0] = b
	return 1, nil
}
