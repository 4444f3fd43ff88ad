package result

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeSplit writes data in pieces whose sizes follow from seed: mostly small
// ones, so that pieces end in the middle of everything.
func writeSplit(t testing.TB, w io.Writer, data []byte, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	for len(data) > 0 {
		size := 1 + r.IntN(8)
		if r.IntN(8) == 0 {
			size = r.IntN(1 + len(data))
		}
		// A copy that is wiped afterwards: a writer must not keep its argument.
		piece := append([]byte(nil), data[:min(size, len(data))]...)
		data = data[len(piece):]
		n, err := w.Write(piece)
		require.NoError(t, err)
		require.Equal(t, len(piece), n)
		clear(piece)
	}
}
