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
// shown all the same.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		w := &waiting{show: func(why string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, why)
		}}
		told := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(lines)
		}
		w.say("first")
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			w.say("changing")
		}
		w.say("last")
		require.Equal(t, []string{"first"}, told())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"first", "last"}, told())
		w.say("at once, after a pause")
		w.say("never")
		w.end()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"first", "last", "at once, after a pause"}, told())
	})
}

func TestQuietWaiting(t *testing.T) {
	var errs bytes.Buffer
	a := &App{Streams: Streams{Err: &errs}}
	a.waits(settings.Settings{Quiet: true}).say("x")
	require.Empty(t, errs.String())
	a.waits(settings.Settings{GPUWait: time.Hour}).say("x")
	require.Equal(t, "sandbox: waiting up to 1h0m0s for x\n", errs.String())
}
