package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

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
		view     View
		want     string
	}{
		"pipe":                  {false, settings.Settings{}, Shown, text},
		"terminal":              {true, settings.Settings{}, Shown, "20%\n^[[2Jdone\n"},
		"terminal, raw":         {true, settings.Settings{Raw: true}, Shown, text + "\n"},
		"pipe, raw":             {false, settings.Settings{Raw: true}, Shown, text},
		"terminal, quiet":       {true, settings.Settings{Quiet: true}, Shown, "20%\n^[[2Jdone\n"},
		"pipe, quiet":           {false, settings.Settings{Quiet: true}, Piped, text},
		"pipe, JSON":            {false, settings.Settings{JSON: true}, Shown, ""},
		"pipe, JSON, quiet":     {false, settings.Settings{JSON: true, Quiet: true}, Shown, ""},
		"hidden":                {true, settings.Settings{}, Hidden, ""},
		"hidden, quiet":         {false, settings.Settings{Quiet: true}, Hidden, ""},
		"for people":            {true, settings.Settings{}, AtTerminal, "20%\n^[[2Jdone\n"},
		"for people, quiet":     {true, settings.Settings{Quiet: true}, AtTerminal, "20%\n^[[2Jdone\n"},
		"for people, in a pipe": {false, settings.Settings{}, AtTerminal, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := &App{Streams: Streams{Out: &out, Err: &out}, OutTerminal: test.terminal, ErrTerminal: test.terminal}
			var shown sandbox.IO
			l := a.connect(&shown, test.settings, test.view)
			if shown.Stdout != nil {
				// In pieces: a character may be cut.
				for _, b := range []byte(text) {
					_, err := shown.Stdout.Write([]byte{b})
					require.NoError(t, err)
				}
			}
			require.Equal(t, shown.Stdout == nil, shown.Stderr == nil)
			require.NoError(t, l.finish())
			got := out.String()
			if test.terminal && !test.settings.Raw { // how often the line was drawn depends on the time
				got = got[strings.LastIndexByte(got, '\r')+1:]
			}
			require.Equal(t, test.want, got)
		})
	}
}

// A terminal that takes nothing any more does not hold us.
func TestStuckTerminal(t *testing.T) {
	stuck, free := io.Pipe() // nobody reads
	defer stuck.Close()
	a := &App{Streams: Streams{Out: free, Err: &bytes.Buffer{}}, OutTerminal: true}
	var shown sandbox.IO
	l := a.connect(&shown, settings.Settings{}, Shown)
	go func() { _, _ = shown.Stdout.Write([]byte("text")) }()
	_, err := stuck.Read(make([]byte, 1)) // the write goes on
	require.NoError(t, err)
	require.ErrorIs(t, l.finish(), errStuck)
}

func TestPalette(t *testing.T) {
	require.True(t, bool((&App{ErrTerminal: true}).Palette()))
	require.False(t, bool((&App{ErrTerminal: false}).Palette()))
	require.False(t, bool((&App{ErrTerminal: true, Environ: []string{"NO_COLOR=1"}}).Palette()))
	require.False(t, bool((&App{ErrTerminal: true, Environ: []string{"TERM=dumb"}}).Palette()))
}
