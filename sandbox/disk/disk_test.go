package disk

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

func TestFull(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		free, limit, entries int64
		want                 bool
	}{
		"empty":                     {10 << 20, 10 << 20, 1000, false},
		"a large write was refused": {480256, 10 << 20, 1000, true}, // measured: 1,000,000 bytes on ext4
		"larger":                    {1314816, 300 << 20, 1000, true},
		"more than a write is left": {1 << 20, 10 << 20, 1000, false},
		"never more than 2 MiB":     {3 << 20, 20 << 30, 1000, false},
		"a small limit":             {40 << 10, 512 << 10, 1000, true},
		"a small limit, half of it": {256 << 10, 512 << 10, 1000, false},
		"no entry is left":          {10 << 20, 10 << 20, 0, true},
	} {
		require.Equal(t, test.want, full(test.free, test.limit, test.entries), name)
	}
}
