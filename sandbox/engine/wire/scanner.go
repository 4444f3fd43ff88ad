package wire

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
)

// scanner passes one stream on, up to its end mark.
type scanner struct {
	mu    sync.Mutex
	nonce Nonce
	to    io.Writer // nil once it has failed
	begun bool
	// resumed means that the beginning of the stream may be missing.
	resumed bool
	// held is the number of bytes at the end that may be the start of the nonce.
	held int
	over atomic.Bool
}

func (s *scanner) begin(nonce Nonce, to io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nonce, s.to, s.begun = nonce, to, true
}

// scan passes p on up to the end mark, and returns the bytes behind the mark.
func (s *scanner) scan(p []byte) (rest []byte, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over.Load() {
		return nil, true
	}
	for s.held > 0 && len(p) > 0 {
		if p = s.resolve(p); s.held == nonceSize {
			s.over.Store(true)
			return p, true
		}
	}
	if len(p) == 0 {
		return nil, false
	}
	if i := s.find(p); i >= 0 {
		s.pass(p[:i])
		s.over.Store(true)
		return p[i+nonceSize:], true
	}
	s.held = s.suffix(p)
	s.pass(p[:len(p)-s.held])
	return nil, false
}

// find returns the index of the end mark in p, or -1. It searches for the part that the
// program cannot know, because output of zeros or of the known part would slow it down.
func (s *scanner) find(p []byte) int {
	for from := 0; ; {
		i := bytes.Index(p[from:], s.nonce[shownNonce:])
		if i < 0 {
			return -1
		}
		from += i
		if start := from - shownNonce; start >= 0 && bytes.HasPrefix(p[start:], s.nonce[:shownNonce]) {
			return start
		}
		from++
	}
}

// resolve decides about the held bytes with the help of p, the bytes behind them, and returns
// the unused rest of p. If they were the mark, held is then the length of the mark.
func (s *scanner) resolve(p []byte) []byte {
	n := min(nonceSize-s.held, len(p))
	for k := range s.held {
		// Perhaps the mark starts k bytes later.
		if bytes.Equal(s.nonce[k:s.held], s.nonce[:s.held-k]) && bytes.HasPrefix(s.nonce[s.held-k:], p[:n]) {
			s.pass(s.nonce[:k])
			s.held += n - k
			return p[n:]
		}
	}
	s.pass(s.nonce[:s.held])
	s.held = 0
	return p
}

// suffix returns the length of the longest suffix of p that is a prefix of the nonce.
func (s *scanner) suffix(p []byte) int {
	tail := p[max(0, len(p)-nonceSize+1):]
	for len(tail) > 0 {
		i := bytes.IndexByte(tail, s.nonce[0])
		if i < 0 {
			return 0
		}
		tail = tail[i:]
		if bytes.HasPrefix(s.nonce[:], tail) {
			return len(tail)
		}
		tail = tail[1:]
	}
	return 0
}

// pass writes to the sink, until a write fails.
func (s *scanner) pass(p []byte) {
	if len(p) == 0 || s.to == nil {
		return
	}
	if _, err := s.to.Write(p); err != nil {
		s.to = nil
	}
}

// flush passes on bytes that were held back for an end mark that never came.
func (s *scanner) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun && !s.over.Load() {
		s.pass(s.nonce[:s.held])
	}
	s.held = 0
}
