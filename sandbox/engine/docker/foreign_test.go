//go:build unix

package docker

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestForeignSignalsOfAnEngineThatGoes: a truncated answer must not count as "no
// signals", because the program would then be reported to have ended by itself.
func TestForeignSignalsOfAnEngineThatGoes(t *testing.T) {
	const event = `{"Type":"container","Action":"kill","Actor":{"ID":"c1","Attributes":{"signal":"15"}}}`
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		want   []string
		lost   bool
	}{
		"no event":  {handle: func(http.ResponseWriter, *http.Request) {}},
		"one event": {handle: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, event) }, want: []string{"SIGTERM"}},
		"no answer": {handle: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, lost: true},
		"half an answer": {handle: func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, lost: true},
		"half an event": {handle: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, event+event[:20])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, want: []string{"SIGTERM"}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInstance(fakeDaemon(t, test.handle), "c1")
			signals, err := c.foreign(t.Context(), time.Now().Add(-time.Second), time.Now())
			require.Equal(t, test.want, signals)
			require.Equal(t, test.lost, isLoss(err), "%v", err)
			require.Equal(t, test.lost, err != nil)
		})
	}
}
