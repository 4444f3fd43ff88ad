package docker

import (
	"bytes"
	"hash/maphash"
	"io"
)

// sink is the destination of one stream of a job. After the writer fails, nothing more is
// written to it; the program does not notice.
//
// A stream can be read again from its beginning, from the engine's log. The sink then skips what
// was passed on, and compares it. The log of an engine that was killed lacks the line that had
// not ended: the engine had passed it on, and kept it in memory until its end.
type sink struct {
	to     io.Writer
	failed bool
	// passed counts the bytes of the stream so far.
	passed int64
	sum    maphash.Hash // of them
	// lines and lineSum are passed and sum at the end of the last whole line, and rest is what
	// follows that; nil if it is longer than maxRest.
	lines   int64
	lineSum uint64
	rest    []byte
	isLong  bool

	// repeated counts the bytes of a log that were read again, and again is their hash. at is
	// the position in the log behind which everything is new.
	repeated, at int64
	again        maphash.Hash
	checking     bool
	// differs says that a log was not what had been passed on.
	differs bool
}

// maxRest bounds the part of an unfinished line that is compared: the engine keeps no more of one
// in memory.
const maxRest = 16 << 10

func newSink(to io.Writer) *sink { return &sink{to: to, failed: to == nil} }

// repeat prepares for reading the same stream from its beginning.
func (s *sink) repeat() {
	s.repeated, s.at, s.checking = 0, s.passed, s.passed > 0
	s.again.SetSeed(s.sum.Seed())
	s.again.Reset()
}

// whole reports whether every log that was read again was what had been passed on, to the end of
// that.
func (s *sink) whole() bool { return !s.differs && !s.checking }

func (s *sink) Write(p []byte) (int, error) {
	all := len(p)
	for s.checking && len(p) > 0 {
		p = s.compare(p)
	}
	s.pass(p)
	return all, nil
}

// compare compares bytes with those that were passed on, and returns those behind.
func (s *sink) compare(p []byte) []byte {
	if s.repeated < s.lines { // whole lines
		n := min(s.lines-s.repeated, int64(len(p)))
		_, _ = s.again.Write(p[:n]) // never fails
		s.repeated += n
		if s.repeated == s.lines && s.again.Sum64() != s.lineSum {
			s.differs = true
		}
		s.checking = s.repeated < s.at
		return p[n:]
	}
	if s.isLong || s.differs { // skip it
		n := min(s.at-s.repeated, int64(len(p)))
		_, _ = s.again.Write(p[:n])
		s.repeated += n
		if s.checking = s.repeated < s.at; !s.checking {
			s.differs = s.differs || s.again.Sum64() != s.sum.Sum64()
		}
		return p[n:]
	}
	// The line that had not ended: what differs from it came after it.
	known := s.rest[s.repeated-s.lines:]
	n := min(len(known), len(p))
	if bytes.Equal(known[:n], p[:n]) {
		s.repeated += int64(n)
		s.checking = s.repeated < s.at
		return p[n:]
	}
	lost := bytes.Clone(s.rest[:s.repeated-s.lines])
	s.checking = false
	return append(lost, p...)
}

// pass passes new bytes on.
func (s *sink) pass(p []byte) {
	if len(p) == 0 {
		return
	}
	s.note(p)
	if !s.failed {
		_, err := s.to.Write(p)
		s.failed = err != nil
	}
}

// note remembers what was passed on.
func (s *sink) note(p []byte) {
	end := bytes.LastIndexByte(p, '\n') + 1
	_, _ = s.sum.Write(p[:end])
	s.passed += int64(len(p))
	if end > 0 {
		s.lines, s.lineSum, s.rest, s.isLong = s.passed-int64(len(p)-end), s.sum.Sum64(), s.rest[:0], false
	}
	_, _ = s.sum.Write(p[end:])
	if s.isLong = s.isLong || len(s.rest)+len(p)-end > maxRest; !s.isLong {
		s.rest = append(s.rest, p[end:]...)
	}
}
