package fsx_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
)

var form = fsx.Lines{Start: `{"schema":"x"`, Max: 100, Sync: true}

func TestLinesRead(t *testing.T) {
	type line struct {
		number     int
		end        int64
		text       string
		torn, last bool
	}
	for text, want := range map[string][]line{
		"":            nil,
		"a\nbc\n":     {{1, 2, "a", false, false}, {2, 5, "bc", false, true}},
		"a\n\r\nb":    {{1, 2, "a", false, false}, {2, 4, "", false, false}, {3, 5, "b", true, true}},
		"a\n\x00\x00": {{1, 2, "a", false, false}, {2, 4, "\x00\x00", true, true}},
	} {
		var got []line
		for l, err := range form.Read(strings.NewReader(text)) {
			require.NoError(t, err)
			got = append(got, line{l.Number, l.End, string(l.Text), l.Torn, l.Last})
		}
		require.Equal(t, want, got, "%q", text)
	}
	var lines int
	var last error
	for l, err := range form.Read(strings.NewReader("a\n" + strings.Repeat("b", 1000) + "\n")) {
		lines, last = l.Number, err
	}
	require.ErrorContains(t, last, "longer than 100 bytes")
	require.Equal(t, 2, lines)
}

func TestLinesAppendRepairsATornLine(t *testing.T) {
	const whole = `{"schema":"x","n":1}` + "\n"
	for before, want := range map[string]string{
		"":                              "NEW\n",
		whole:                           whole + "NEW\n",
		whole + `{"sch`:                 whole + "NEW\n",
		whole + `{"schema":"x","n":1}`:  whole + "NEW\n",
		whole + "\x00\x00\x00":          whole + "NEW\n",
		`{"schema":"x"`:                 "NEW\n",
		whole + "precious":              "",
		strings.Repeat("x", 200):        "",
		whole + strings.Repeat("x", 99): "",
	} {
		path := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(path, []byte(before), 0o600))
		file, err := fsx.OpenAppend(path, 0o600)
		require.NoError(t, err)
		err = form.Append(file, []byte("NEW"))
		require.NoError(t, file.Close())
		got, readErr := os.ReadFile(path)
		require.NoError(t, readErr)
		if want == "" {
			require.ErrorContains(t, err, "the last line has no end", "%q", before)
			want = before
		} else {
			require.NoError(t, err, "%q", before)
		}
		require.Equal(t, want, string(got))
	}
}

func TestOpenAppendRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("elsewhere", filepath.Join(dir, "link")))
	_, err := fsx.OpenAppend(filepath.Join(dir, "link"), 0o600)
	require.Error(t, err)
	require.NoFileExists(t, filepath.Join(dir, "elsewhere"))
	_, err = fsx.OpenAppend(dir, 0o600)
	require.Error(t, err)
	file, err := fsx.OpenAppend(filepath.Join(dir, "f"), 0o600)
	require.NoError(t, err)
	defer file.Close()
	require.ErrorContains(t, form.Append(file, []byte(strings.Repeat("x", 101))), "longer than 100 bytes")
}

// TestLockWait: writers that wait for each other tear no line.
func TestLockWait(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				lock, err := fsx.LockWait(t.Context(), dir)
				if err != nil {
					t.Error(err)
					return
				}
				file, err := fsx.OpenAppend(path, 0o600)
				if err == nil {
					err = form.Append(file, []byte(form.Start), []byte(form.Start))
				}
				if err != nil {
					t.Error(err)
				}
				_ = file.Close()
				_ = lock.Close()
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat(form.Start+"\n", 320), string(got))
}

// TestLockWaitEndsWithItsCaller: nobody waits longer for a lock than he wants to, and gets none for an
// error of the system.
func TestLockWaitEndsWithItsCaller(t *testing.T) {
	dir := t.TempDir()
	held, err := fsx.LockWait(t.Context(), dir)
	require.NoError(t, err)
	gaveUp := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := fsx.LockWait(ctx, dir)
		waited <- err
	}()
	cancel(gaveUp)
	require.ErrorIs(t, <-waited, gaveUp)
	require.NoError(t, held.Close())
	again, err := fsx.LockWait(t.Context(), dir) // also if the caller that gave up has it for a moment
	require.NoError(t, err)
	require.NoError(t, again.Close())
}
