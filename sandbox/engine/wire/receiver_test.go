package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readyFrame, acceptedFrame and reportFrame are frames as init sends them.
func marksSeen(r *Receiver) (stdout, stderr bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marks()
}

func readyFrame() []byte {
	payload := appendField(nil, 1, []byte("build"))
	return newFrame(typeReady, appendField(payload, 2, []byte("Uid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\n")))
}

func acceptedFrame(nonce Nonce) []byte {
	return newFrame(typeAccepted, appendField(nil, 1, nonce[:shownNonce]))
}

func reportPayload(code byte) []byte {
	p := appendField(nil, 1, []byte{1, 0, 0, 0})
	p = appendField(p, 2, []byte{code, 0, 0, 0})
	return appendField(p, 4, []byte{1, 2, 0, 0, 0, 0, 0, 0})
}

func reportFrame(code byte) []byte {
	return append(newFrame(typeReport, reportPayload(code)), '\n')
}

// pieces cuts p into parts of the given lengths plus one, and the rest.
func pieces(p []byte, cuts []byte) [][]byte {
	var all [][]byte
	for i := 0; len(p) > 0; i++ {
		n := len(p)
		if i < len(cuts) {
			n = min(n, int(cuts[i])+1)
		}
		all, p = append(all, p[:n]), p[n:]
	}
	return all
}

func feedAll(w io.Writer, all [][]byte) {
	for _, p := range all {
		if n, err := w.Write(p); n != len(p) || err != nil {
			panic("a receiver takes everything")
		}
	}
}

// nonceNotEndingIn0 is a nonce whose first 31 bytes may stand in the output again and again: the
// 0 that each of them begins with does not complete the one before.
func nonceNotEndingIn0() Nonce {
	nonce := NewNonce()
	nonce[nonceSize-1] |= 1
	return nonce
}

// bytewise are cuts into single bytes.
func bytewise(p []byte) []byte { return make([]byte, len(p)) }

func TestReceiver(t *testing.T) {
	for name, cuts := range map[string]func([]byte) []byte{"at once": func([]byte) []byte { return nil }, "bytewise": bytewise} {
		t.Run(name, func(t *testing.T) {
			nonce := nonceNotEndingIn0()
			r := NewReceiver()
			feedAll(r.Stderr(), pieces([]byte("a complaint"), cuts(make([]byte, 11))))
			feedAll(r.Stdout(), pieces(readyFrame(), cuts(readyFrame())))
			ready, err := r.Ready(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 7, ready.UID)
			assert.Equal(t, "a complaint", r.Complaint())

			var out, errs bytes.Buffer
			r.Begin(nonce, &out, &errs)
			feedAll(r.Stdout(), pieces(acceptedFrame(nonce), cuts(acceptedFrame(nonce))))
			require.NoError(t, r.Accepted(t.Context()))
			text := slices.Concat(readyFrame(), reportFrame(9), nonce[:31], nonce[:1], []byte("text"), nonce[:8])
			rest := slices.Concat(text, nonce[:], reportFrame(3))
			feedAll(r.Stdout(), pieces(rest, cuts(rest)))
			stdout, stderr := marksSeen(r)
			assert.True(t, stdout)
			assert.False(t, stderr)
			select {
			case <-r.Over():
				t.Fatal("over with one mark")
			default:
			}
			rest = slices.Concat(text, nonce[:], []byte("\n"))
			feedAll(r.Stderr(), pieces(rest, cuts(rest)))
			report, err := r.End(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 3, report.Value)
			assert.Equal(t, text, out.Bytes())
			assert.Equal(t, text, errs.Bytes())
			assert.Equal(t, "a complaint", r.Complaint())
			r.Close(io.ErrUnexpectedEOF)
			_, err = r.End(t.Context())
			require.NoError(t, err, "what has arrived stays")
		})
	}
}

// TestReceiverEndsInAnyOrder: the last bytes may be either mark, the report, or a newline.
func TestReceiverEndsInAnyOrder(t *testing.T) {
	nonce := NewNonce()
	end := slices.Concat(nonce[:], reportFrame(3))
	for _, order := range []string{"out err", "err out", "o err ut", "out-1 err 1"} {
		r := Resume(nonce, io.Discard, io.Discard)
		_, err := r.Stdout().Write(acceptedLog(nonce))
		require.NoError(t, err)
		for step := range strings.FieldsSeq(order) {
			switch step {
			case "out":
				r.writeOut(end)
			case "o":
				r.writeOut(end[:40])
			case "ut":
				r.writeOut(end[40:])
			case "out-1":
				r.writeOut(end[:len(end)-1])
			case "1":
				r.writeOut(end[len(end)-1:])
			case "err":
				r.writeErr(append(nonce[:], '\n'))
			}
		}
		_, err = r.End(t.Context())
		require.NoError(t, err, order)
	}
}

func acceptedLog(nonce Nonce) []byte { return append(readyFrame(), acceptedFrame(nonce)...) }

// TestReceiverThatIsCut checks that the error names the missing marks, and that bytes held back
// for a mark are passed on.
func TestReceiverThatIsCut(t *testing.T) {
	nonce := NewNonce()
	begun := func() (*Receiver, *bytes.Buffer, *bytes.Buffer) {
		var out, errs bytes.Buffer
		r := NewReceiver()
		r.writeOut(readyFrame())
		r.Begin(nonce, &out, &errs)
		r.writeOut(acceptedFrame(nonce))
		return r, &out, &errs
	}
	t.Run("within a mark", func(t *testing.T) {
		r, out, errs := begun()
		r.writeOut(append([]byte("text"), nonce[:20]...))
		r.writeErr(nonce[:])
		assert.Equal(t, "text", out.String())
		r.Close(io.ErrUnexpectedEOF)
		_, err := r.End(t.Context())
		require.ErrorIs(t, err, ErrCut)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorContains(t, err, "end of stdout seen: false, of stderr: true")
		assert.Equal(t, "text"+string(nonce[:20]), out.String())
		assert.Empty(t, errs.String())
	})
	t.Run("within a report", func(t *testing.T) {
		r, out, _ := begun()
		r.writeErr(nonce[:])
		r.writeOut(slices.Concat(nonce[:], reportFrame(3)[:30]))
		r.Close(nil)
		_, err := r.End(t.Context())
		require.ErrorIs(t, err, ErrCut)
		require.ErrorContains(t, err, "end of stdout seen: false, of stderr: true")
		assert.Empty(t, out.String())
	})
	t.Run("before it was accepted", func(t *testing.T) {
		r := NewReceiver()
		r.Close(nil)
		_, err := r.Ready(t.Context())
		require.ErrorIs(t, err, ErrCut)
		require.ErrorIs(t, r.Accepted(t.Context()), ErrCut)
		select {
		case <-r.closed:
		default:
			t.Fatal("not closed")
		}
	})
	t.Run("while somebody waits", func(t *testing.T) {
		r, _, _ := begun()
		ended := make(chan error)
		go func() {
			_, err := r.End(context.Background())
			ended <- err
		}()
		r.Close(io.EOF)
		require.ErrorIs(t, <-ended, ErrCut)
	})
	t.Run("by the context", func(t *testing.T) {
		r, _, _ := begun()
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("enough")
		cancel(reason)
		_, err := r.End(ctx)
		require.ErrorIs(t, err, reason)
	})
}

func TestReceiverRefusesGarbage(t *testing.T) {
	nonce, other := NewNonce(), NewNonce()
	refused := newFrame(typeRefused, appendField(appendField(nil, 1, []byte{1, 0, 0, 0}), 2, []byte("\x1b[31mno")))
	for name, test := range map[string]struct {
		before, after []byte
		want          error
	}{
		"not a frame":           {before: []byte("sh: not found\n"), want: errFormat},
		"another version":       {before: []byte{0, 'E', 'B', 'X', 2, 1, 0, 0, 0, 0, 0, 0}, want: errFormat},
		"a controller's frame":  {before: newFrame(typeBye, nil), want: errFormat},
		"too long":              {before: []byte{0, 'E', 'B', 'X', 1, 1, 0, 0, 1, 0, 16, 0}, want: errFormat},
		"an empty ready frame":  {before: newFrame(typeReady, nil), want: errFormat},
		"accepted before ready": {before: acceptedFrame(nonce), want: errFormat},
		"ready twice":           {before: append(readyFrame(), readyFrame()...), want: errFormat},
		"another job's answer":  {before: readyFrame(), after: acceptedFrame(other), want: errFormat},
		"refused":               {before: readyFrame(), after: refused, want: errRefused},
		"output":                {before: readyFrame(), after: []byte("exec failed, says something"), want: errFormat},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := NewReceiver()
			r.writeOut(test.before)
			r.Begin(nonce, &out, io.Discard)
			r.writeOut(test.after)
			err := r.Accepted(t.Context())
			require.ErrorIs(t, err, test.want)
			assert.NotContains(t, err.Error(), "\x1b")
			assert.Empty(t, out.String())
		})
	}
}

// TestResume: a log may begin anywhere in the output.
func TestResume(t *testing.T) {
	nonce := NewNonce()
	endless := newFrame(typeReady, nil)
	copy(endless[8:], []byte{0, 0, 16, 0})
	for name, test := range map[string]struct {
		log  []byte
		want string
	}{
		"with its beginning":         {acceptedLog(nonce), ""},
		"behind the answer":          {nil, ""},
		"in the output":              {[]byte("half a line\nand more"), "half a line\nand more"},
		"in a short output":          {[]byte("x"), "x"},
		"with ready alone":           {append(readyFrame(), "output of the program"...), "output of the program"},
		"an endless frame":           {endless, string(endless)},
		"a beginning of an end":      {nonce[:5], string(nonce[:5])},
		"another job's":              {acceptedLog(NewNonce()), ""},
		"with its beginning, output": {append(acceptedLog(nonce), "text"...), "text"},
	} {
		for _, cuts := range [][]byte{nil, make([]byte, 4096)} {
			t.Run(name, func(t *testing.T) {
				var out, errs bytes.Buffer
				r := Resume(nonce, &out, &errs)
				require.NoError(t, r.Accepted(t.Context()))
				feedAll(r.Stdout(), pieces(slices.Concat(test.log, nonce[:], reportFrame(3)), cuts))
				feedAll(r.Stderr(), pieces(slices.Concat([]byte("error"), nonce[:]), cuts))
				report, err := r.End(t.Context())
				require.NoError(t, err)
				assert.Equal(t, 3, report.Value)
				if name != "another job's" { // its answer is output, the ready frame is not
					assert.Equal(t, test.want, out.String())
				}
				assert.Equal(t, "error", errs.String())
			})
		}
	}
	t.Run("cut within what may be a frame", func(t *testing.T) {
		var out bytes.Buffer
		r := Resume(nonce, &out, io.Discard)
		r.writeOut(endless)
		r.writeOut([]byte("text"))
		r.Close(nil)
		assert.Equal(t, string(endless)+"text", out.String())
	})
}

// TestBegan: the log of a container that was restarted before it had a job has a second ready
// frame, of which the engine may only keep the whole lines.
func TestBegan(t *testing.T) {
	nonce := NewNonce()
	ready := readyFrame()
	for name, test := range map[string]struct {
		log  []byte
		want bool
	}{
		"nothing":                  {nil, false},
		"ready":                    {ready, false},
		"a part of ready":          {ready[:len(ready)-3], false},
		"restarted":                {slices.Concat(ready, ready), false},
		"restarted, a part":        {slices.Concat(ready, ready[:len(ready)-3]), false},
		"restarted, and its job":   {slices.Concat(ready, acceptedLog(nonce)), true},
		"accepted":                 {acceptedLog(nonce), true},
		"a part of another header": {slices.Concat(ready, ready[:3]), true},
		"a part of the answer":     {slices.Concat(ready, acceptedFrame(nonce)[:headerSize]), true},
		"output":                   {slices.Concat(ready, []byte("output of the program")), true},
	} {
		r := Resume(nonce, io.Discard, io.Discard)
		feedAll(r.Stdout(), pieces(test.log, nil))
		assert.Equal(t, test.want, r.Began(), name)
	}
}

// failing is a sink that fails.
type failing struct{ n int }

func (f *failing) Write(p []byte) (int, error) {
	f.n++
	return 0, io.ErrShortWrite
}

// TestReceiverWithoutSink checks that a failing sink does not end a run.
func TestReceiverWithoutSink(t *testing.T) {
	nonce := NewNonce()
	sink := &failing{}
	r := NewReceiver()
	r.writeOut(readyFrame())
	r.Begin(nonce, sink, sink)
	r.writeOut(acceptedFrame(nonce))
	for range 10 {
		r.writeOut([]byte("text"))
	}
	r.writeErr(slices.Concat([]byte("text"), nonce[:]))
	r.writeOut(slices.Concat(nonce[:], reportFrame(3)))
	_, err := r.End(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, sink.n)
}

// TestReceiverConcurrently writes each stream from a goroutine of its own while End waits.
func TestReceiverConcurrently(t *testing.T) {
	nonce := nonceNotEndingIn0()
	var out, errs bytes.Buffer
	r := NewReceiver()
	r.writeOut(readyFrame())
	r.Begin(nonce, &out, &errs)
	r.writeOut(acceptedFrame(nonce))
	text := bytes.Repeat(nonce[:31], 3000)
	var writing sync.WaitGroup
	cuts := bytes.Repeat([]byte{1, 30, 32, 100}, 1000)
	writing.Go(func() { feedAll(r.Stdout(), pieces(slices.Concat(text, nonce[:], reportFrame(3)), cuts)) })
	writing.Go(func() { feedAll(r.Stderr(), pieces(slices.Concat(text, nonce[:], []byte("\n")), cuts)) })
	_, err := r.End(t.Context())
	require.NoError(t, err)
	writing.Wait()
	assert.Equal(t, text, out.Bytes())
	assert.Equal(t, text, errs.Bytes())
}

// counter is a sink that counts bytes.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// FuzzReceiver checks that the result does not depend on how a stream is split into writes.
func FuzzReceiver(f *testing.F) {
	nonce := Nonce{}
	copy(nonce[:], "\x00a\x00\x00ab0123456789abcdefghijklmnopq")
	f.Add([]byte("text"), []byte{0, 1, 2}, false)
	f.Add(bytes.Repeat(nonce[:7], 20), []byte{3, 5, 30, 31, 32}, false)
	f.Add(acceptedLog(nonce), []byte{11, 12}, true)
	f.Add(append(nonce[:], reportFrame(1)...), []byte{40}, true)
	f.Add([]byte("\x00EBX\x01\x01\x00\x00\xff\xff\x00\x00"), []byte{3}, true)
	f.Fuzz(func(t *testing.T, stream, cuts []byte, resumed bool) {
		type outcome struct {
			out    string
			report Report
			marked bool
		}
		receive := func(all [][]byte) outcome {
			var out bytes.Buffer
			var r *Receiver
			if resumed {
				r = Resume(nonce, &out, io.Discard)
			} else {
				r = NewReceiver()
				r.writeOut(readyFrame())
				r.Begin(nonce, &out, io.Discard)
				r.writeOut(acceptedFrame(nonce))
			}
			feedAll(r.Stdout(), all)
			marked, _ := marksSeen(r)
			r.Close(nil)
			return outcome{out.String(), r.report, marked}
		}
		whole, cut := receive([][]byte{stream}), receive(pieces(stream, cuts))
		if whole != cut {
			t.Fatalf("at once %+v, cut %+v", whole, cut)
		}
		if strings.Contains(whole.out, string(nonce[:])) {
			t.Fatal("the nonce has reached the output")
		}
		if i := bytes.Index(stream, nonce[:]); !resumed && i >= 0 && whole.out != string(stream[:i]) || !resumed && i < 0 && whole.out != string(stream) {
			t.Fatalf("the output is not what lies before the mark: %q", whole.out)
		}
	})
}

// BenchmarkReceiver measures the throughput of random bytes, zeros (the first byte of a mark),
// text, and starts of a mark.
func BenchmarkReceiver(b *testing.B) {
	random := make([]byte, 1<<20)
	_, err := rand.Read(random)
	require.NoError(b, err)
	nonce := nonceNotEndingIn0()
	for name, block := range map[string][]byte{"random": random, "zeros": make([]byte, 1<<20), "text": bytes.Repeat([]byte("a line of text\n"), 1<<16),
		"beginnings": bytes.Repeat(nonce[:31], 1<<15)} {
		b.Run(name, func(b *testing.B) {
			r := NewReceiver()
			r.writeOut(readyFrame())
			sink := &counter{}
			r.Begin(nonce, sink, sink)
			r.writeOut(acceptedFrame(nonce))
			b.SetBytes(int64(len(block)))
			b.ReportAllocs()
			for b.Loop() {
				for p := block; len(p) > 0; p = p[min(len(p), 32<<10):] {
					r.writeOut(p[:min(len(p), 32<<10)])
				}
			}
		})
	}
}
