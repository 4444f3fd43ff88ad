package gpu

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/metrics"
)

func TestReadUsage(t *testing.T) {
	for name, c := range map[string]struct {
		ids   []string
		lines string
		want  []metrics.GPU
	}{
		"by index": {[]string{"1"}, "GPU-a, 0, 5, 10\nGPU-b, 1, 50, 1024\n", []metrics.GPU{{ID: "1", Utilization: 0.5, MemoryBytes: 1 << 30}}},
		"by UUID":  {[]string{"GPU-a"}, "GPU-a, 0, 5, 10\nGPU-b, 1, 50, 1024\n", []metrics.GPU{{ID: "GPU-a", Utilization: 0.05, MemoryBytes: 10 << 20}}},
		"all":      {nil, "GPU-a, 0, 0, 10\nGPU-b, 1, 100, 1\n", []metrics.GPU{{ID: "GPU-a", MemoryBytes: 10 << 20}, {ID: "GPU-b", Utilization: 1, MemoryBytes: 1 << 20}}},
		"the last": {nil, "GPU-a, 0, 10, 10\nGPU-a, 0, 20, 30\n", []metrics.GPU{{ID: "GPU-a", Utilization: 0.2, MemoryBytes: 30 << 20}}},
		"garbage": {nil, "Failed to initialize NVML\nGPU-a, 0, [N/A], 10\nGPU-b, 1, 101, 1\nGPU-c, 2, 10, -1\nGPU-d, 3, NaN, 1\na,b\n" +
			strings.Repeat("x", 100_000) + "\n", nil},
	} {
		var u Usage
		u.read(c.ids, strings.NewReader(c.lines))
		require.Equal(t, c.want, u.Last(), name)
	}
}

func TestUsageIsBounded(t *testing.T) {
	var u Usage
	for i := range 2 * maxUsed {
		u.note(metrics.GPU{ID: strings.Repeat("x", i+1)})
	}
	require.Len(t, u.Last(), maxUsed)
}

// One nvidia-smi goes on until the run has ended.
func TestWatch(t *testing.T) {
	standIn(t, `case "$*" in *--loop=2*--id=0) ;; *) exit 1 ;; esac
echo GPU-a, 0, 40, 7
exec sleep 1000
`)
	ctx, cancel := context.WithCancel(t.Context())
	var u Usage
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.Watch(ctx, []string{"0"}, 2*time.Second)
	}()
	require.Eventually(t, func() bool { return u.Last() != nil }, 10*time.Second, time.Millisecond)
	require.Equal(t, []metrics.GPU{{ID: "0", Utilization: 0.4, MemoryBytes: 7 << 20}}, u.Last())
	cancel()
	<-ended
	require.Nil(t, u.Last())
}

// Without an nvidia-smi that works nothing is known, and nothing fails.
func TestNothingToWatch(t *testing.T) {
	var u Usage
	standIn(t, "exit 9\n")
	u.Watch(t.Context(), []string{"0"}, time.Second)
	require.Nil(t, u.Last())
	t.Setenv("PATH", t.TempDir())
	u.Watch(t.Context(), []string{"0"}, time.Second)
	require.Nil(t, u.Last())
}
