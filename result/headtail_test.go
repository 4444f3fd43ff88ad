package result

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeadTail(t *testing.T) {
	for _, c := range []struct {
		limit    int
		in, want string
	}{
		{8, "", ""},
		{8, "12345678", "12345678"},
		{8, "123456789", "1234\n[... 1 bytes dropped ...]\n6789"},
		{8, "1234------5678", "1234\n[... 6 bytes dropped ...]\n5678"},
		{7, "1234------567", "1234\n[... 6 bytes dropped ...]\n567"},
		{1, "1--", "1\n[... 2 bytes dropped ...]\n"},
		{0, "", ""},
		{0, "123", "\n[... 3 bytes dropped ...]\n"},
		{-5, "123", "\n[... 3 bytes dropped ...]\n"},
		// A character on the border is left out on both sides.
		{8, "abc€----€xyz", "abc\n[... 10 bytes dropped ...]\nxyz"},
		{8, "abé-----éyz", "abé\n[... 5 bytes dropped ...]\néyz"},
		// Not cut: complete, or broken in any case.
		{8, "€\xff\xff", "€\ufffd\ufffd"},
		{8, "\xff\xff\xff\xff--\xff\xff\xff\xff", "\ufffd\ufffd\ufffd\ufffd\n[... 2 bytes dropped ...]\n\ufffd\ufffd\ufffd\ufffd"},
	} {
		for seed := range uint64(10) {
			h := NewHeadTail(c.limit)
			writeSplit(t, h, []byte(c.in), seed)
			require.Equal(t, c.want, h.Text(), "%q", c.in)
			require.Equal(t, c.want, h.Text(), "asking changes nothing")
			require.Equal(t, int64(len(c.in)), h.Total())
			require.Equal(t, len(c.in) > max(c.limit, 0), h.Truncated())
		}
	}
}

func TestHeadTailGoesOnAfterText(t *testing.T) {
	h := NewHeadTail(4)
	for i := range 10 {
		_, _ = fmt.Fprint(h, i)
		_ = h.Text()
	}
	require.Equal(t, "01\n[... 6 bytes dropped ...]\n89", h.Text())
}

func TestHeadTailZeroValueCounts(t *testing.T) {
	var h HeadTail
	_, _ = h.Write([]byte("abc"))
	require.Equal(t, int64(3), h.Total())
	require.True(t, h.Truncated())
}

func TestHeadTailMemory(t *testing.T) {
	h := NewHeadTail(1 << 20)
	_, _ = h.Write([]byte("12345"))
	require.LessOrEqual(t, cap(h.buf), 1024, "little output must cost little memory")
	for range 100 {
		_, _ = h.Write(make([]byte, 33_333))
	}
	require.Equal(t, 1<<20, cap(h.buf))
}

func FuzzHeadTail(f *testing.F) {
	f.Add([]byte("abc€----€xyz"), uint8(8), uint64(1))
	f.Add([]byte("\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f"), uint8(5), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, limit uint8, seed uint64) {
		h := NewHeadTail(int(limit))
		writeSplit(t, h, data, seed)
		got := h.Text()
		require.Equal(t, int64(len(data)), h.Total())
		if len(data) <= int(limit) {
			require.False(t, h.Truncated())
			require.Equal(t, DecodeUTF8(data), got)
			return
		}
		// The rule on the whole stream.
		tailLen := int(limit) / 2
		head, tail := data[:int(limit)-tailLen], data[len(data)-tailLen:]
		head, tail = headBorder(head), tailBorder(tail)
		require.True(t, bytes.HasPrefix(data, head) && bytes.HasSuffix(data, tail))
		want := fmt.Sprintf("%s\n[... %d bytes dropped ...]\n%s",
			DecodeUTF8(head), len(data)-len(head)-len(tail), DecodeUTF8(tail))
		require.Equal(t, want, got)
	})
}

func BenchmarkHeadTail(b *testing.B) {
	h := NewHeadTail(1 << 20)
	p := make([]byte, 32<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		_, _ = h.Write(p)
	}
}
