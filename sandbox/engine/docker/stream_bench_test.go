package docker

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// printed is what a program prints in n bytes, in frames as the engine sends them.
func printed(n int) []byte {
	const frame = 32 << 10
	text := strings.Repeat("epoch 17: loss 0.3141, accuracy 0.9265\n", frame/39+1)[:frame]
	return bytes.Repeat([]byte(dockerFrame(frameStdout, text)), n/frame)
}

// passOn sends output through everything between the connection to the engine and the record.
func passOn(stream []byte) error {
	receiver := wire.Resume(wire.NewNonce(), newSink(io.Discard), newSink(io.Discard))
	return demultiplex(bytes.NewReader(stream), receiver.Stdout(), receiver.Stderr())
}

func BenchmarkOutput(b *testing.B) {
	stream := printed(1 << 20)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, passOn(stream))
	}
}

// TestOutputCostsNoMemory: what a program prints costs the controller the same memory, however much
// it is.
func TestOutputCostsNoMemory(t *testing.T) {
	few, many := printed(1<<20), printed(16<<20)
	allocated := func(stream []byte) float64 {
		return testing.AllocsPerRun(3, func() { require.NoError(t, passOn(stream)) })
	}
	// One allocation for each frame would be hundreds more. Other goroutines of the process are counted, too.
	require.LessOrEqual(t, allocated(many), allocated(few)+100, "%d bytes against %d", len(many), len(few))
}
