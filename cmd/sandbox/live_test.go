package main

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox"
)

// What of the program reaches which stream.
func TestConnect(t *testing.T) {
	const text = "10%\r20%\r\n\x1b[2Jdone"
	tests := map[string]struct {
		terminal bool
		settings settings
		want     string
	}{
		"pipe":              {false, settings{}, text},
		"terminal":          {true, settings{}, "10%\n20%\n^[[2Jdone\n"},
		"terminal, raw":     {true, settings{Raw: true}, text + "\n"},
		"pipe, raw":         {false, settings{Raw: true}, text},
		"terminal, quiet":   {true, settings{Quiet: true}, ""},
		"pipe, JSON":        {false, settings{JSON: true}, ""},
		"pipe, JSON, quiet": {false, settings{JSON: true, Quiet: true}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := &app{streams: Streams{Out: &out, Err: &out}, outTerminal: test.terminal, errTerminal: test.terminal}
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

// A terminal that takes nothing any more does not hold us.
func TestStuckTerminal(t *testing.T) {
	stuck, free := io.Pipe() // nobody reads
	defer stuck.Close()
	a := &app{streams: Streams{Out: free, Err: &bytes.Buffer{}}, outTerminal: true}
	var shown sandbox.IO
	l := a.connect(&shown, settings{})
	writing := make(chan struct{})
	go func() {
		close(writing)
		_, _ = shown.Stdout.Write([]byte("text"))
	}()
	<-writing
	require.Eventually(t, l.cursor.MidLine, time.Minute, time.Millisecond)
	require.ErrorIs(t, l.finish(), errStuck)
}

func TestPalette(t *testing.T) {
	require.True(t, bool((&app{errTerminal: true}).palette()))
	require.False(t, bool((&app{errTerminal: false}).palette()))
	require.False(t, bool((&app{errTerminal: true, environ: []string{"NO_COLOR=1"}}).palette()))
	require.False(t, bool((&app{errTerminal: true, environ: []string{"TERM=dumb"}}).palette()))
}
