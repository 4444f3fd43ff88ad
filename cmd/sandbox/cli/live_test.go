package cli

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox"
)

// What of the program reaches which stream.
func TestConnect(t *testing.T) {
	const text = "10%\r20%\r\n\x1b[2Jdone"
	tests := map[string]struct {
		terminal bool
		settings settings.Settings
		want     string
	}{
		"pipe":              {false, settings.Settings{}, text},
		"terminal":          {true, settings.Settings{}, "10%\r20%\r20%\n^[[2Jdone\n"},
		"terminal, raw":     {true, settings.Settings{Raw: true}, text + "\n"},
		"pipe, raw":         {false, settings.Settings{Raw: true}, text},
		"terminal, quiet":   {true, settings.Settings{Quiet: true}, ""},
		"pipe, JSON":        {false, settings.Settings{JSON: true}, ""},
		"pipe, JSON, quiet": {false, settings.Settings{JSON: true, Quiet: true}, ""},
	}
	for name, test := range tests {
		testIn(t, name, func(t *testing.T) {
			var out bytes.Buffer
			a := &App{Streams: Streams{Out: &out, Err: &out}, OutTerminal: test.terminal, ErrTerminal: test.terminal}
			var shown sandbox.IO
			l := a.connect(&shown, test.settings)
			if shown.Stdout != nil {
				// In pieces: a character may be cut.
				for _, b := range []byte(text) {
					_, err := shown.Stdout.Write([]byte{b})
					require.NoError(t, err)
				}
			}
			require.Equal(t, shown.Stdout == nil, shown.Stderr == nil)
			require.NoError(t, l.finish())
			require.Equal(t, test.want, out.String())
		})
	}
}

// testIn is a test whose time only goes on while all wait.
func testIn(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// held is a terminal that says when a write begins, and never ends it.
type held struct {
	once        sync.Once
	begun, ever chan struct{}
}

func (h *held) Write([]byte) (int, error) {
	h.once.Do(func() { close(h.begun) })
	<-h.ever
	return 0, io.ErrClosedPipe
}

// A terminal that takes nothing any more does not hold us.
func TestStuckTerminal(t *testing.T) {
	out := &held{begun: make(chan struct{}), ever: make(chan struct{})}
	defer close(out.ever)
	a := &App{Streams: Streams{Out: out, Err: &bytes.Buffer{}}, OutTerminal: true}
	var shown sandbox.IO
	l := a.connect(&shown, settings.Settings{})
	go func() { _, _ = shown.Stdout.Write([]byte("text")) }()
	<-out.begun
	require.ErrorIs(t, l.finish(), errStuck)
}

func TestPalette(t *testing.T) {
	require.True(t, bool((&App{ErrTerminal: true}).Palette()))
	require.False(t, bool((&App{ErrTerminal: false}).Palette()))
	require.False(t, bool((&App{ErrTerminal: true, Environ: []string{"NO_COLOR=1"}}).Palette()))
	require.False(t, bool((&App{ErrTerminal: true, Environ: []string{"TERM=dumb"}}).Palette()))
}
