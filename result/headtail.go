package result

import (
	"fmt"
	"slices"
)

// HeadTail is a writer that keeps the first and the last bytes of a stream and
// drops the middle: a program that floods its output costs bounded memory, and
// both the start and the end can still be read (EX-038). Memory grows with the
// stream, up to the limit.
//
// It is not safe for concurrent use. The zero value keeps nothing and counts.
type HeadTail struct {
	limit int
	// buf holds the stream up to limit bytes. After that, buf[:headLen] stays
	// as the head and the rest is a ring whose oldest byte is at ring.
	buf   []byte
	ring  int
	total int64
}

// NewHeadTail returns a HeadTail that keeps at most limit bytes, half of them
// for the head and half for the tail. A negative limit is 0.
func NewHeadTail(limit int) *HeadTail {
	return &HeadTail{limit: max(limit, 0)}
}

// Write takes the next piece of the stream. It returns len(p) and never an
// error, so that a reader that must not stop can write to it.
func (h *HeadTail) Write(p []byte) (int, error) {
	n := len(p)
	h.total += int64(n)
	if room := h.limit - len(h.buf); room > 0 {
		k := min(room, len(p))
		h.grow(k)
		h.buf = append(h.buf, p[:k]...)
		p = p[k:]
	}
	tail := h.buf[h.headLen():]
	if len(tail) == 0 || len(p) == 0 {
		return n, nil
	}
	if len(p) >= len(tail) {
		copy(tail, p[len(p)-len(tail):])
		h.ring = 0
		return n, nil
	}
	k := copy(tail[h.ring:], p)
	copy(tail, p[k:])
	h.ring = (h.ring + len(p)) % len(tail)
	return n, nil
}

// grow makes room for n more bytes. It doubles, but not past the limit: append
// would go past it.
func (h *HeadTail) grow(n int) {
	need := len(h.buf) + n
	if need <= cap(h.buf) {
		return
	}
	size := min(max(need, 2*cap(h.buf), 512), h.limit)
	buf := make([]byte, len(h.buf), size)
	copy(buf, h.buf)
	h.buf = buf
}

// headLen is the number of bytes of buf that belong to the head.
func (h *HeadTail) headLen() int {
	return min(h.limit-h.limit/2, len(h.buf))
}

// skip counts n bytes of the stream that the caller has dropped. At least
// limit/2 bytes must come before and after them, so that they would be dropped
// here as well.
func (h *HeadTail) skip(n int64) { h.total += n }

// Total returns the number of bytes that were written.
func (h *HeadTail) Total() int64 { return h.total }

// Truncated reports whether bytes were dropped.
func (h *HeadTail) Truncated() bool { return h.total > int64(h.limit) }

// Text returns the kept bytes, decoded by [DecodeUTF8]. When bytes were dropped,
// a line
//
//	[... N bytes dropped ...]
//
// stands between head and tail. N is exact, and includes the bytes of a
// character that was cut.
func (h *HeadTail) Text() string {
	if !h.Truncated() {
		return DecodeUTF8(h.buf)
	}
	h.straighten()
	cut := h.headLen()
	head, tail := headBorder(h.buf[:cut]), tailBorder(h.buf[cut:])
	dropped := h.total - int64(len(head)) - int64(len(tail))
	return fmt.Sprintf("%s\n[... %d bytes dropped ...]\n%s", DecodeUTF8(head), dropped, DecodeUTF8(tail))
}

// straighten turns the ring so that its oldest byte comes first.
func (h *HeadTail) straighten() {
	tail := h.buf[h.headLen():]
	slices.Reverse(tail[:h.ring])
	slices.Reverse(tail[h.ring:])
	slices.Reverse(tail)
	h.ring = 0
}

// reset forgets the stream and keeps the memory.
func (h *HeadTail) reset() {
	h.buf, h.ring, h.total = h.buf[:0], 0, 0
}

// clone returns an independent copy.
func (h *HeadTail) clone() HeadTail {
	c := *h
	c.buf = slices.Clone(h.buf)
	return c
}

// TruncationWarning is the text that EX-038 wants after output that was cut at
// limit bytes.
func TruncationWarning(limit int64) string {
	return fmt.Sprintf("\n\n[WARNING: Output truncated. Original size exceeded %d bytes limit.]", limit)
}
