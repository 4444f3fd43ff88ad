package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func decodeEvents(t *testing.T, text string) (all []event) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e event
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		require.Equal(t, "evalbox/run-event/v1", e.Schema)
		all = append(all, e)
	}
	return all
}

func TestEvents(t *testing.T) {
	var out bytes.Buffer
	e := &Events{out: &out, runID: "r1"}
	stdout, stderr := e.stream("stdout"), e.stream("stderr")
	sent := []byte("héllo <&>\n" + strings.Repeat("€", maxEventOutput) + "\xe2\x82")
	for _, b := range sent[:8] { // characters are cut
		_, err := stdout.Write([]byte{b})
		require.NoError(t, err)
	}
	_, _ = stdout.Write(sent[8:])
	_, _ = stderr.Write([]byte("a\xff"))
	require.NoError(t, e.ended(3, map[string]int{"exit_code": 3}))
	_, _ = stdout.Write([]byte("late"))
	require.NoError(t, e.end(event{Event: "error"}))

	all := decodeEvents(t, out.String())
	var got []byte
	for _, each := range all[:len(all)-1] {
		require.Equal(t, "output", each.Event)
		require.LessOrEqual(t, len(each.Text)+len(each.Base64), maxEventOutput)
		if each.Stream == "stdout" {
			got = append(append(got, each.Text...), each.Base64...)
		} else {
			require.Equal(t, "a\xff", string(each.Base64))
		}
	}
	require.Equal(t, string(sent), string(got))
	last := all[len(all)-1]
	require.Equal(t, "ended", last.Event)
	require.Equal(t, 3, *last.Code)
	require.JSONEq(t, `{"exit_code":3}`, string(last.Result))
}

// A reader that went away harms no program.
func TestEventsReaderGone(t *testing.T) {
	gone, out := io.Pipe()
	require.NoError(t, gone.Close())
	e := &Events{out: out}
	_, err := e.stream("stdout").Write([]byte("a"))
	require.NoError(t, err)
	require.ErrorIs(t, e.ended(0, 1), ErrReaderGone)
}

func TestEventOfAFailure(t *testing.T) {
	var out bytes.Buffer
	a := &App{Streams: Streams{Out: &out}, Code: ExitSandbox}
	a.failed(WithHint(errors.New("no engine"), "start it"))
	all := decodeEvents(t, out.String())
	require.Len(t, all, 1)
	require.Equal(t, "no engine", all[0].Error)
	require.Equal(t, []string{"start it"}, all[0].Hints)
	require.Equal(t, ExitSandbox, *all[0].Code)
}

// The example of the documentation has the fields that events have.
func TestEventsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/events.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "```json\n")
	example, _, _ := strings.Cut(rest, "```")
	var names []string
	for line := range strings.Lines(example) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var e event
		require.NoError(t, d.Decode(&e), line)
		require.Equal(t, "evalbox/run-event/v1", e.Schema)
		names = append(names, e.Event)
	}
	require.Equal(t, []string{"waiting", "started", "output", "output", "ended"}, names)
}
