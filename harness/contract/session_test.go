package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// A cacheable call with the same input has the same result during a session.
func TestSession(t *testing.T) {
	n := 0
	program := func(sandbox.Request, string) result.Result {
		n++
		return result.Result{Status: result.StatusExited, Stdout: fmt.Sprint(n)}
	}
	h, box := adaptedHarness(t, fakeAdapters{"A": {Cacheable: true}, "B": {}}, program)
	value := func(c Contract) (any, bool) {
		t.Helper()
		o := carriedOut(t, h, of(c))
		require.True(t, o.Success, o.Error)
		return o.Call.Value, o.Call.Cached
	}
	requireValue := func(c Contract, want string, cached bool) {
		t.Helper()
		got, known := value(c)
		require.Equal(t, want, got)
		require.Equal(t, cached, known)
	}
	requireValue(through("A"), "1", false)
	requireValue(through("A"), "1", true)
	c := through("A")
	c.ExecutionID = "another"
	var used trial.Usage
	job := of(c)
	job.used = &used
	o := carriedOut(t, h, job)
	require.Zero(t, used, "nothing ran")
	require.True(t, o.Call.Cached)
	require.Equal(t, "another", o.ExecutionID)
	require.Len(t, box.ran, 1)

	// Everything that the call depends on is part of the input.
	c = through("A")
	c.Inputs.Parameters = map[string]any{"n": int64(1)}
	requireValue(c, "2", false)
	requireValue(c, "2", true)
	file := filepath.Join(h.Root, "src/a.txt")
	require.NoError(t, os.WriteFile(file, []byte("b\n"), 0o644))
	requireValue(through("A"), "3", false)
	require.NoError(t, os.WriteFile(file, []byte("a\n"), 0o644))
	requireValue(through("A"), "1", true)
	h.Request.Image = "other"
	requireValue(through("A"), "4", false)

	// Other adapters are called each time.
	requireValue(through("B"), "5", false)
	requireValue(through("B"), "6", false)

	// Another session begins without results.
	again, err := New(box, h.Options)
	require.NoError(t, err)
	h = again
	requireValue(through("A"), "7", false)
}

// A failure is not remembered, and neither is what needed an approval.
func TestSessionForgets(t *testing.T) {
	h, box := adaptedHarness(t, fakeAdapters{"A": {Cacheable: true}}, codes(1, 0))
	require.False(t, carriedOut(t, h, of(through("A"))).Success)
	o := carriedOut(t, h, of(through("A")))
	require.True(t, o.Success)
	require.False(t, o.Call.Cached)
	require.Len(t, box.ran, 2)

	c := through("A")
	c.ToolID, c.Inputs.Command = "TL-010", "python3"
	c.Sandbox.Filesystem.Level = "elevated"
	o = carriedOut(t, h, Job{Contract: &c, Approver: Approver{Name: "Ada", Reason: "a test"}})
	require.True(t, o.Success, o.Error)
	require.Equal(t, StatusRefused, carriedOut(t, h, of(c)).Status)
}

// A session remembers a bounded number of calls; the oldest one makes room.
func TestSessionIsBounded(t *testing.T) {
	h := &Harness{session: newSession()}
	h.remember("", Outcome{})
	require.Empty(t, h.session.known)
	for i := range maxSession + 10 {
		h.remember(fmt.Sprint(i), Outcome{Call: &Call{}})
	}
	h.remember("100", Outcome{Call: &Call{}})
	require.Len(t, h.session.known, maxSession)
	require.Len(t, h.session.order, maxSession)
	require.NotContains(t, h.session.known, "9")
	require.Contains(t, h.session.known, "10")
	require.Contains(t, h.session.known, fmt.Sprint(maxSession+9))
}
