package testlog

import (
	"bufio"
	"fmt"
	"io"
	"unicode/utf8"
)

// xmlLimits bound a report, in bytes: the file, one tag with its attributes, and one text,
// comment or CDATA section. The decoder holds each tag and text in memory.
type xmlLimits struct{ report, tag, text int }

// usual are the limits of all reports.
var usual = xmlLimits{report: 64 << 20, tag: 1 << 20, text: 16 << 20}

// xmlSource is a report as the decoder may read it: of bounded length, with bounded
// tokens, and with U+FFFD for bytes and characters that XML forbids, which programs print
// and writers of reports often forget to escape.
type xmlSource struct {
	r       *bufio.Reader
	limits  xmlLimits
	read    int
	pending []byte
	buf     [utf8.UTFMax]byte
	// token counts the bytes of the current token, and start has its first ones.
	token int
	start []byte
	last  byte
}

func newXMLSource(r io.Reader, limits xmlLimits) *xmlSource {
	return &xmlSource{r: bufio.NewReader(r), limits: limits}
}

// begin tells that the next byte belongs to another token. The decoder has read the '<'
// of it if text came before.
func (s *xmlSource) begin() {
	s.token, s.start = 0, s.start[:0]
	if s.last == '<' {
		s.start = append(s.start, '<')
	}
}

// ReadByte is how the decoder reads.
func (s *xmlSource) ReadByte() (byte, error) {
	if len(s.pending) == 0 {
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	b := s.pending[0]
	s.pending = s.pending[1:]
	s.last = b
	s.token++
	if len(s.start) < 3 {
		s.start = append(s.start, b)
	}
	if most := s.most(); s.token > most {
		return 0, fmt.Errorf("a tag or text has more than %d bytes", most)
	}
	return b, nil
}

// most is how long the current token may be.
func (s *xmlSource) most() int {
	if len(s.start) > 0 && s.start[0] != '<' {
		return s.limits.text
	}
	if len(s.start) == 3 && s.start[1] == '!' && (s.start[2] == '[' || s.start[2] == '-') {
		return s.limits.text
	}
	return s.limits.tag
}

func (s *xmlSource) fill() error {
	r, size, err := s.r.ReadRune()
	if err != nil {
		return err
	}
	s.read += size
	if s.read > s.limits.report {
		return fmt.Errorf("it has more than %d bytes", s.limits.report)
	}
	if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
		r = utf8.RuneError
	}
	s.pending = s.buf[:utf8.EncodeRune(s.buf[:], r)]
	return nil
}

// Read serves who does not read byte by byte.
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
