package cli

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgress(t *testing.T) {
	var stderr bytes.Buffer
	p := Progress{More: func() string { return ", more" }}
	p.Start(&App{Streams: Streams{Err: &stderr}}, false, 10, 5)
	p.Running(1)
	require.Equal(t, "1 running, more · 0s", p.describe())
	p.End("a")
	p.Skip(1)
	require.Equal(t, "10s, 30s left", p.times(10*time.Second))
	p.Once("waiting: a")
	p.Once("waiting: b")
	p.Say("%d%s", 1, "\x1b")
	p.Stop()
	require.Equal(t, "sandbox: 6/10 a\nsandbox: waiting: a\nsandbox: 1^[\n", stderr.String())
}

// A bar may follow another one, as that of the next round of a batch does.
func TestProgressAgain(t *testing.T) {
	var p Progress
	app := &App{Streams: Streams{Err: io.Discard}, ErrTerminal: true}
	for range 3 {
		p.Start(app, false, 2, 2)
		require.NotNil(t, p.bar)
		p.End("a")
		require.Equal(t, 1, p.ended)
		p.Stop()
		require.Nil(t, p.bar)
	}
}
