package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is long for tests in which nothing gets stuck: it only bounds a test
// that has failed already.
const patience = time.Minute

// gate is a writer that blocks until it is opened.
type gate struct {
	entered chan struct{}
	open    chan struct{}
	once    sync.Once
	buffer  bytes.Buffer
}

func newGate() *gate { return &gate{entered: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.entered) })
	<-g.open
	return g.buffer.Write(p)
}

// tagged writes both streams into one buffer, so that their order shows.
type tagged struct {
	tag string
	to  *[]string
}

func (w tagged) Write(p []byte) (int, error) {
	*w.to = append(*w.to, w.tag+string(p))
	return len(p), nil
}

// pair is two recorders with one live reader.
func pair(t testing.TB, limit int64, stdout, stderr io.Writer) (out, err *recorder, live *liveOutput) {
	t.Helper()
	outWrite, outRead := newFile(t)
	errWrite, errRead := newFile(t)
	live = newLiveOutput(stdout, stderr, outRead, errRead)
	return newRecorder(outWrite, limit, live, 0, nil), newRecorder(errWrite, limit, live, 1, nil), live
}

func TestLiveKeepsTheOrderOfTwoStreams(t *testing.T) {
	for name, limit := range map[string]int64{"from the files": 1 << 20, "from memory": 0, "from both": 6} {
		t.Run(name, func(t *testing.T) {
			var got []string
			first := newGate() // the first write waits until all are queued
			out, err, live := pair(t, limit, io.MultiWriter(first, tagged{"1", &got}), tagged{"2", &got})
			var want []string
			put(t, out, []byte("!!"))
			<-first.entered
			for i := range 8 {
				put(t, out, fmt.Appendf(nil, "o%d", i))
				put(t, err, fmt.Appendf(nil, "e%d", i))
				want = append(want, fmt.Sprintf("1o%d", i), fmt.Sprintf("2e%d", i))
			}
			close(first.open)
			require.NoError(t, live.finish(patience))
			require.Equal(t, "1!!", got[0])
			require.Equal(t, strings.Join(want, ""), strings.Join(got[1:], ""))
		})
	}
}

func TestLiveMergesWhatLiesTogetherInTheFile(t *testing.T) {
	g := newGate()
	out, _, live := pair(t, 1<<30, g, nil)
	put(t, out, []byte("first"))
	<-g.entered
	want := bytes.NewBufferString("first")
	for range 100_000 {
		put(t, out, []byte("x"))
		want.WriteByte('x')
	}
	live.mu.Lock()
	queued := len(live.queue)
	live.mu.Unlock()
	require.Equal(t, 1, queued, "a slow reader of one stream costs one range")
	close(g.open)
	require.NoError(t, live.finish(patience))
	require.Equal(t, want.String(), g.buffer.String())
}

// A reader that is slower than the program by any factor loses nothing that the
// file holds, and costs no memory.
func TestSlowReaderReadsBehindFromTheFile(t *testing.T) {
	const size = 9 << 20
	require.Greater(t, size, maxMemory, "more than memory could hold")
	g := newGate()
	out, _, live := pair(t, size, g, nil)
	put(t, out, []byte("!"))
	<-g.entered
	text := pattern(1, size-1)
	for at := 0; at < len(text); at += 1 << 20 {
		put(t, out, text[at:min(at+1<<20, len(text))])
	}
	require.Zero(t, live.memBytes)
	close(g.open)
	require.NoError(t, live.finish(patience))
	require.True(t, bytes.Equal(text, g.buffer.Bytes()[1:]))
}

func TestBlockedReaderNeverBlocksTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		out, errStream, live := pair(t, 100, g, g)
		began := time.Now()
		for range 1000 {
			put(t, out, pattern(0, 64<<10))
			put(t, errStream, pattern(0, 64<<10))
		}
		require.Equal(t, int64(1000*64<<10), out.Total())
		require.Zero(t, time.Since(began), "no write waited")
		require.LessOrEqual(t, live.memBytes, maxMemory)

		require.ErrorIs(t, live.finish(5*time.Second), errStuck)
		require.Equal(t, 5*time.Second, time.Since(began), "patience, and no longer")
		close(g.open) // the reader ends, or the bubble reports it
		<-live.done
	})
}

// slowly is a writer that takes its time, but moves.
type slowly struct {
	each time.Duration
	to   io.Writer
}

func (w slowly) Write(p []byte) (int, error) {
	time.Sleep(w.each) // of the fake clock
	return w.to.Write(p)
}

func TestFinishWaitsAsLongAsSomethingMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shown bytes.Buffer
		out, _, live := pair(t, 1<<30, slowly{3 * time.Second, &shown}, nil)
		text := pattern(0, 100*copyBuffer)
		put(t, out, text)
		began := time.Now()
		require.NoError(t, live.finish(5*time.Second))
		require.GreaterOrEqual(t, time.Since(began), 5*time.Minute)
		require.True(t, bytes.Equal(text, shown.Bytes()))
	})
}

func TestFinishOfAnIdleReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, newLiveOutput(io.Discard, io.Discard, nil, nil).finish(time.Second))
		out, errStream, live := pair(t, 100, io.Discard, io.Discard)
		put(t, out, nil)
		put(t, errStream, nil)
		require.NoError(t, live.finish(time.Second))
		require.Zero(t, time.Since(began))
	})
}

func TestBeyondTheFileComesFromMemoryThenADropLine(t *testing.T) {
	g := newGate()
	const inFile = 1000
	out, _, live := pair(t, inFile, g, nil)
	put(t, out, []byte("!"))
	<-g.entered
	stored := pattern(1, inFile-1)
	put(t, out, stored)
	inMemory := pattern(2, maxMemory)
	for at := 0; at < maxMemory; at += maxMemory / 4 {
		put(t, out, inMemory[at:at+maxMemory/4])
	}
	dropped := 0
	for _, n := range []int{1, 5000, 77} {
		put(t, out, pattern(3, n))
		dropped += n
	}
	close(g.open)
	require.NoError(t, live.finish(patience))

	got := g.buffer.Bytes()[1:]
	require.True(t, bytes.Equal(stored, got[:len(stored)]), "the file first")
	got = got[len(stored):]
	require.True(t, bytes.Equal(inMemory, got[:len(inMemory)]), "memory next")
	require.Equal(t, fmt.Sprintf("\n[... %d bytes not shown: the reader was too slow ...]\n", dropped), string(got[len(inMemory):]))
	require.Zero(t, live.memBytes, "memory is given back")
}

func TestAfterADropMemoryIsUsedAgain(t *testing.T) {
	steps := make(chan struct{})
	var shown bytes.Buffer
	out, _, live := pair(t, 0, writerFunc(func(p []byte) (int, error) {
		<-steps
		return shown.Write(p)
	}), nil)
	put(t, out, pattern(0, maxMemory)) // taken, but not yet written
	eventually(t, live, func() bool { return len(live.queue) == 0 })
	put(t, out, pattern(0, maxMemory))
	put(t, out, []byte("dropped"))
	steps <- struct{}{} // now the second piece is taken, and memory is free
	eventually(t, live, func() bool { return live.memBytes == 0 })
	put(t, out, []byte("shown"))
	close(steps)
	require.NoError(t, live.finish(patience))
	require.True(t, strings.HasSuffix(shown.String(),
		"\n[... 7 bytes not shown: the reader was too slow ...]\nshown"))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// eventually waits until the live reader has brought about what the test needs.
func eventually(t *testing.T, live *liveOutput, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		live.mu.Lock()
		done := ok()
		live.mu.Unlock()
		if done {
			return
		}
		require.True(t, time.Now().Before(deadline), "the live reader does not move")
		runtime.Gosched()
	}
}

func TestTakenOutputIsNotKeptInMemory(t *testing.T) {
	g := newGate()
	out, _, live := pair(t, 0, g, nil)
	put(t, out, []byte("!"))
	<-g.entered
	put(t, out, []byte("one"))
	put(t, out, []byte("two"))
	live.mu.Lock()
	before := live.queue
	live.mu.Unlock()
	close(g.open)
	require.NoError(t, live.finish(patience))
	require.Len(t, before, 2)
	for _, s := range before {
		require.Nil(t, s.data, "the queue's array must not hold on to what was written")
	}
}

func TestFailingWriterLeavesTheOtherStreamAlone(t *testing.T) {
	broken := errors.New("broken pipe")
	for name, limit := range map[string]int64{"from the files": 1 << 20, "from memory": 0} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			var shown bytes.Buffer
			out, errStream, live := pair(t, limit, writerFunc(func([]byte) (int, error) {
				calls++
				return 0, broken
			}), &shown)
			var want bytes.Buffer
			for i := range 1000 {
				put(t, out, []byte("lost"))
				put(t, errStream, fmt.Appendf(nil, "line %d\n", i))
				fmt.Fprintf(&want, "line %d\n", i)
			}
			err := live.finish(patience)
			require.ErrorIs(t, err, broken)
			require.NotErrorIs(t, err, errStuck)
			require.Equal(t, want.String(), shown.String())
			require.Equal(t, 1, calls, "a writer that failed is left alone")
			require.Equal(t, int64(4000), out.Total())
		})
	}
}

func TestBothWritersMayFail(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	out, errStream, live := pair(t, 100, failingWriter{first}, failingWriter{second})
	put(t, out, []byte("x"))
	put(t, errStream, []byte("x"))
	err := live.finish(patience)
	require.ErrorIs(t, err, first)
	require.ErrorIs(t, err, second)
}

func TestRecordedFileThatCannotBeRead(t *testing.T) {
	write, read := newFile(t)
	require.NoError(t, read.Close())
	var other bytes.Buffer
	live := newLiveOutput(io.Discard, &other, read, nil)
	r := newRecorder(write, 100, live, 0, nil)
	put(t, r, []byte("x"))
	live.memory(1, []byte("still here"))
	require.ErrorIs(t, live.finish(patience), os.ErrClosed)
	require.Equal(t, "still here", other.String())
}

func TestStreamWithoutAWriter(t *testing.T) {
	for name, limit := range map[string]int64{"in the file": 1 << 30, "beyond the file": 0} {
		t.Run(name, func(t *testing.T) {
			var shown bytes.Buffer
			out, errStream, live := pair(t, limit, nil, &shown)
			for range 20 {
				put(t, out, pattern(0, 1<<20))
			}
			require.Empty(t, live.queue)
			put(t, errStream, []byte("only this"))
			require.NoError(t, live.finish(patience))
			require.Equal(t, "only this", shown.String())
		})
	}
}

// Two streams that take turns byte by byte are the worst case for a queue of
// ranges: no two neighbours can be merged.
func TestAlternatingBytesDoNotGrowTheQueue(t *testing.T) {
	for name, limit := range map[string]int64{"in the files": 1 << 30, "beyond the files": 0, "across": 70_000} {
		t.Run(name, func(t *testing.T) {
			g, errGate := newGate(), newGate()
			out, errStream, live := pair(t, limit, g, errGate)
			put(t, out, []byte("!"))
			<-g.entered
			const rounds = 3 * maxSegments / 2
			var want bytes.Buffer
			for i := range rounds {
				b := []byte{byte('a' + i%26)}
				put(t, out, b)
				put(t, errStream, b)
				want.Write(b)
			}
			live.mu.Lock()
			queued := len(live.queue)
			live.mu.Unlock()
			require.LessOrEqual(t, queued, maxSegments+4)
			close(g.open)
			close(errGate.open)
			require.NoError(t, live.finish(patience))
			for _, got := range []string{strings.TrimPrefix(g.buffer.String(), "!"), errGate.buffer.String()} {
				if limit > rounds {
					require.True(t, want.String() == got, "each stream is exact, whatever the order between them")
					continue
				}
				shown, dropped := countDropped(t, got)
				require.Equal(t, rounds, len(shown)+dropped)
				require.True(t, strings.HasPrefix(want.String(), shown), "what is shown is the beginning")
			}
		})
	}
}

// countDropped takes the drop line off the end.
func countDropped(t *testing.T, text string) (shown string, dropped int) {
	t.Helper()
	before, line, ok := strings.Cut(text, "\n[... ")
	if ok {
		_, err := fmt.Sscanf(line, "%d bytes not shown: the reader was too slow ...]\n", &dropped)
		require.NoError(t, err)
	}
	return before, dropped
}

// The property behind all: whatever is written in whatever pieces, and however
// slowly it is read, each stream is passed on exactly, as long as it is not more
// than files and memory hold.
func TestEachStreamIsPassedOnExactly(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 7))
				var shown, want [2]bytes.Buffer
				limit := []int64{0, 1, 1000, 50_000, 1 << 30}[random.IntN(5)]
				delays := rand.New(rand.NewPCG(seed, 8)) // of the reader's goroutine alone
				reader := func(i int) io.Writer {
					return writerFunc(func(p []byte) (int, error) {
						if delays.IntN(3) == 0 {
							time.Sleep(time.Duration(delays.IntN(1000)) * time.Millisecond)
						}
						return shown[i].Write(p)
					})
				}
				out, errStream, live := pair(t, limit, reader(0), reader(1))
				for range random.IntN(600) {
					i := random.IntN(2)
					size := random.IntN(10)
					if random.IntN(10) == 0 {
						size = random.IntN(9000)
					}
					piece := pattern(random.IntN(251), size)
					put(t, []*recorder{out, errStream}[i], piece)
					want[i].Write(piece)
					if random.IntN(4) == 0 {
						time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
					}
				}
				require.NoError(t, live.finish(time.Hour))
				for i := range shown {
					require.True(t, bytes.Equal(want[i].Bytes(), shown[i].Bytes()), "stream %d differs", i)
				}
				require.Zero(t, live.memBytes)
			})
		})
	}
}

// One goroutine per stream, as the worst that a reader of two connections does.
func TestConcurrentStreams(t *testing.T) {
	var shown [2]bytes.Buffer
	out, errStream, live := pair(t, 100_000, &shown[0], &shown[1])
	var want [2][]byte
	var writers sync.WaitGroup
	for i, r := range []*recorder{out, errStream} {
		want[i] = pattern(i, 1<<20)
		writers.Go(func() {
			for at := 0; at < len(want[i]); at += 4096 {
				put(t, r, want[i][at:at+4096])
			}
		})
	}
	writers.Wait()
	require.NoError(t, live.finish(patience))
	for i := range shown {
		require.True(t, bytes.Equal(want[i], shown[i].Bytes()))
	}
}
