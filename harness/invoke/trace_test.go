package invoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func scanText(t *testing.T, text string, mode Mode) (int64, error) {
	t.Helper()
	return ScanTrace(t.Context(), strings.NewReader(text), "t", mode, nil)
}

func TestScanTrace(t *testing.T) {
	for name, test := range map[string]struct {
		text    string
		records int64
	}{
		"empty":             {"", 0},
		"blank lines only":  {"\n \t\n\u00a0\n", 0},
		"step":              {"{\"step\": 1}\n{\"step\": -2}\n{\"step\": 0}", 3},
		"step_id":           {"{\"step_id\": \"a\"}\n{\"step_id\": 7}\n{\"step_id\": \"\"}\n", 3},
		"whole floats":      {`{"step": 1.0}` + "\n" + `{"step": 2e3}`, 2},
		"one is enough":     {`{"step": null, "step_id": "a"}`, 1},
		"a huge number":     {`{"step": 123456789012345678901234567890}`, 1},
		"spaces around":     {"  {\"step\": 1}\t\n", 1},
		"all line ends":     {"{\"step\": 1}\r\n{\"step\": 2}\r{\"step\": 3}\n\r\n\r{\"step\": 4}", 4},
		"other separators":  {"{\"step\": 1, \"t\": \"a\u0085b\u2028c\"}\n", 1},
		"longer than a buf": {`{"step": 1, "t": "` + strings.Repeat("x", 70<<10) + "\"}\r\n{\"step\": 2}", 2},
	} {
		for _, mode := range []Mode{Strict, Compat} {
			records, err := scanText(t, test.text, mode)
			require.NoError(t, err, name)
			require.Equal(t, test.records, records, name)
		}
		// However the bytes arrive.
		records, err := ScanTrace(t.Context(), iotest.OneByteReader(strings.NewReader(test.text)), "t", Strict, nil)
		require.NoError(t, err, name)
		require.Equal(t, test.records, records, name)
	}
}

func TestScanTraceRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		line int64
		kind Kind
	}{
		"an array":        {"{\"step\": 1}\n\n[1]\n", 3, KindNotObject},
		"null":            {"null", 1, KindNotObject},
		"two in a line":   {`{"step": 1}{"step": 2}`, 1, KindInvalidJSON},
		"over lines":      {"{\n\"step\": 1}", 1, KindInvalidJSON},
		"not UTF-8":       {"{\"step\": 1}\r\n{\"step\": 2, \"t\": \"\xff\"}", 2, KindInvalidJSON},
		"no step":         {"{\"step\": 1}\r{\"other\": 1}", 2, KindMissingStep},
		"below":           {`{"meta": {"step": 1}}`, 1, KindMissingStep},
		"another case":    {`{"Step": 1}`, 1, KindMissingStep},
		"the first error": {"{\"x\": 1}\n{bad", 1, KindMissingStep},
	} {
		for _, mode := range []Mode{Strict, Compat} {
			_, err := scanText(t, test.text, mode)
			var problem *ArtifactError
			require.ErrorAs(t, err, &problem, name)
			require.Equal(t, test.kind, problem.Kind, name)
			require.Equal(t, test.line, problem.Line, name)
			require.ErrorContains(t, err, fmt.Sprintf("t:%d: ", test.line), name)
		}
	}
	// What only the strict mode refuses.
	for _, text := range []string{
		`{"step": "1"}`, `{"step": 1.5}`, `{"step": {}}`, `{"step": true}`, `{"step": null}`, `{"step": 1e999}`,
		`{"step": 9007199254740992.5}`, `{"step": 0.99999999999999999999}`, `{"step": 1e-400}`, `{"step": 12e-1}`, `{"step": -0.5e0}`, `{"step": 1e-99999999999999999999}`,
		`{"step_id": 1.5}`, `{"step_id": []}`, `{"step": "1", "step_id": null}`,
	} {
		_, err := scanText(t, text, Strict)
		require.Equal(t, KindMissingStep, kindOf(t, err), text)
		records, err := scanText(t, text, Compat)
		require.NoError(t, err, text)
		require.EqualValues(t, 1, records, text)
	}
}

// TestWholeNumbers: numbers are judged by their digits.
func TestWholeNumbers(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "-0": true, "-0.0": true, "0e-400": true, "12345678901234567890123": true, "1.0": true, "1E3": true, "1.25e2": true, "1.25e+2": true,
		"1200e-2": true, "-10e-1": true, "0.00e5": true, "9007199254740993.0": true,
		"1.25e1": false, "1201e-2": false, "0.1": false, "9007199254740993.5": false, "1e-1": false, "0.01e1": false, `"1"`: false, "true": false, "1e309": false,
	} {
		require.Equal(t, want, isWhole(json.RawMessage(text)), text)
	}
}

// zeros is an endless line.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestScanTraceIsBounded: neither a line without end nor a long trace takes more memory
// than a line may have.
func TestScanTraceIsBounded(t *testing.T) {
	_, err := ScanTrace(t.Context(), io.MultiReader(strings.NewReader("{\"step\": 1}\n"), io.LimitReader(zeros{}, MaxLine+1<<20)), "t", Strict, nil)
	var problem *ArtifactError
	require.ErrorAs(t, err, &problem)
	require.Equal(t, KindLineTooLong, problem.Kind)
	require.EqualValues(t, 2, problem.Line)

	line := `{"step": 1, "text": "` + strings.Repeat("x", 1<<10) + "\"}\n"
	const records = 100_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	highest, n := uint64(0), 0
	_, err = ScanTrace(t.Context(), &repeated{text: line, left: records}, "t", Strict, func(TraceRecord) error {
		if n++; n%10_000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&after)
			highest = max(highest, after.HeapAlloc)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, records, n)
	require.Less(t, int64(highest)-int64(before.HeapAlloc), int64(16<<20), "100 MB of trace are not held")
}

// repeated is a text many times.
type repeated struct {
	text string
	left int
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.text[r.at:])
	if r.at += n; r.at == len(r.text) {
		r.at, r.left = 0, r.left-1
	}
	return n, nil
}

func TestScanTraceEndsEarly(t *testing.T) {
	stop := errors.New("enough")
	records, err := ScanTrace(t.Context(), strings.NewReader("{\"step\": 1}\n{\"step\": 2}"), "t", Strict, func(r TraceRecord) error {
		if r.Line == 2 {
			return stop
		}
		return nil
	})
	require.ErrorIs(t, err, stop)
	require.EqualValues(t, 1, records)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	_, err = ScanTrace(ctx, zeros{}, "t", Strict, nil)
	require.ErrorIs(t, err, stop)

	_, err = ScanTrace(t.Context(), iotest.ErrReader(errors.New("the disk is gone")), "t", Strict, nil)
	require.Equal(t, KindUnreadable, kindOf(t, err))
	require.ErrorContains(t, err, "the disk is gone")
}

func TestLoadTracePack(t *testing.T) {
	path := filepath.Join(t.TempDir(), TracePackName)
	_, err := LoadTracePack(t.Context(), path, Strict)
	require.Equal(t, KindMissing, kindOf(t, err))
	require.NoError(t, os.WriteFile(path, []byte("{\"step\": 1}\n\n{\"step\": \"2\"}\n"), 0o600))
	records, err := LoadTracePack(t.Context(), path, Compat)
	require.NoError(t, err)
	require.Equal(t, []json.RawMessage{[]byte(`{"step": 1}`), []byte(`{"step": "2"}`)}, records)
	_, err = LoadTracePack(t.Context(), path, Strict)
	require.ErrorContains(t, err, path+":3: ")
}

func FuzzScanTrace(f *testing.F) {
	f.Add([]byte("{\"step\": 1}\r\n\r{\"step_id\": \"a\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, err := ScanTrace(t.Context(), strings.NewReader(string(text)), "t", Strict, nil)
		if err != nil {
			var problem *ArtifactError
			require.ErrorAs(t, err, &problem)
			require.Positive(t, problem.Line)
			return
		}
		// Whatever is right in the strict mode is right in the other.
		compat, err := ScanTrace(t.Context(), strings.NewReader(string(text)), "t", Compat, nil)
		require.NoError(t, err)
		require.Equal(t, records, compat)
	})
}
