package wire

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
)

// scanner passes one stream on until its end mark.
type scanner struct {
	mu    sync.Mutex
	nonce Nonce
	to    io.Writer // nil once it has failed
	begun bool
	// resumed says that the beginning may be missing.
	resumed bool
	// held is the beginning of the nonce that the last bytes could be.
	held int
	over atomic.Bool
}

func (s *scanner) begin(nonce Nonce, to io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nonce, s.to, s.begun = nonce, to, true
}

// scan passes p on, but for the end mark and what comes behind it, which it returns.
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

// find is the place of the end mark in p, or -1. It looks for the part that the program
// cannot know, because output of zeros, or of what it can know, would slow it down.
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

// resolve decides about bytes that were held back, with what comes behind them, and returns
// what it has not used of that. All of the mark is held when it was the mark.
func (s *scanner) resolve(p []byte) []byte {
	n := min(nonceSize-s.held, len(p))
	for k := range s.held {
		// Without the first k of them.
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

// suffix is the length of the longest end of p that the nonce begins with.
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

// pass writes to the sink until it fails.
func (s *scanner) pass(p []byte) {
	if len(p) == 0 || s.to == nil {
		return
	}
	if _, err := s.to.Write(p); err != nil {
		s.to = nil
	}
}

// flush passes on what was held back for an end mark that never came.
func (s *scanner) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun && !s.over.Load() {
		s.pass(s.nonce[:s.held])
	}
	s.held = 0
}
