package cli

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/settings"
)

// A queue that changes all the time does not flood stderr, and its last state is
// told all the same.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		w := &Waiting{tell: func(why string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, why)
		}}
		told := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(lines)
		}
		w.Say("first")
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			w.Say("changing")
		}
		w.Say("last")
		require.Equal(t, []string{"first"}, told())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"first", "last"}, told())
		w.Say("at once, after a pause")
		w.Say("never")
		w.End()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"first", "last", "at once, after a pause"}, told())
	})
}

func TestQuietWaiting(t *testing.T) {
	var errs bytes.Buffer
	a := &App{Streams: Streams{Err: &errs}}
	a.Waiting(settings.Settings{Quiet: true}).Say("x")
	require.Empty(t, errs.String())
	a.Waiting(settings.Settings{GPUWait: time.Hour}).Say("x")
	require.Equal(t, "sandbox: waiting for GPUs, up to 1h0m0s: x\n", errs.String())
}
