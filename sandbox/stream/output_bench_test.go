package stream

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkOutput records 1 MiB and shows it live, as a run of the command line does.
func BenchmarkOutput(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(b, err)
	defer null.Close()
	out, err := OpenOutput(b.TempDir(), Options{FileBytes: 1 << 40, CaptureStdout: 1 << 20, CaptureStderr: 1 << 18, LiveStdout: null})
	require.NoError(b, err)
	piece := []byte(strings.Repeat("epoch 17: loss 0.3141, accuracy 0.9265\n", (32<<10)/39+1)[:32<<10])
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		for range 32 {
			_, _ = out.Stdout.Write(piece)
		}
	}
	require.Empty(b, out.Close())
}
