package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/wish"
	"github.com/evalbox/evalbox/internal/settings"
)

func TestGateCode(t *testing.T) {
	for status, code := range map[evidence.Status]int{
		evidence.Pass: 0, evidence.Blocked: 1, evidence.NeedInfo: 3, "": 1, "pass": 1,
	} {
		assert.Equal(t, code, gateCode(evidence.Verdict{Status: status}), status)
	}
	for outcome, code := range map[gate.Outcome]int{gate.ReplaySame: 0, gate.ReplayDifferent: 1, gate.ReplayCannot: 3, "": 1} {
		assert.Equal(t, code, replayCode(gate.ReplayReport{Outcome: outcome}), outcome)
	}
}

func TestIsLock(t *testing.T) {
	for text, want := range map[string]bool{
		`{"schema": "evalbox/wish-lock/v1"}`: true, ` {"schema":"evalbox/wish-lock/v2"}`: true,
		`{"schema": "evalbox/wish/v1"}`: false, `schema: evalbox/wish-lock/v1`: false, ``: false, `{`: false, `[]`: false,
	} {
		assert.Equal(t, want, isLock([]byte(text)), text)
	}
}

// TestReportsAreNoPartOfTheWorkspace: what is sealed on the spot leaves them out, a sealed
// wish has to.
func TestReportsAreNoPartOfTheWorkspace(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "work", "ci"), 0o755))
	require.NoError(t, os.Symlink("work", filepath.Join(dir, "link")))
	t.Chdir(dir)
	options := func(exclude ...string) *gate.Options {
		o := &gate.Options{WishDir: dir}
		o.Lock.Wish.IOBoundary, o.Lock.Wish.Exclude = "work", exclude
		return o
	}
	o := options("dist")
	require.NoError(t, (&gateFlags{junit: "link/ci/junit.xml", summary: "page.md"}).checkReports(o))
	assert.Equal(t, []string{"dist", "ci/junit.xml"}, o.Lock.Wish.Exclude)
	assert.Equal(t, []string{"work/ci/junit.xml"}, o.Ignore)

	o = options("ci/")
	o.Sealed = true
	require.NoError(t, (&gateFlags{junit: "work/ci/junit.xml"}).checkReports(o))
	assert.Equal(t, []string{"ci/"}, o.Lock.Wish.Exclude, "a sealed wish stays as it is")
	err := (&gateFlags{summary: "work/page.md"}).checkReports(o)
	require.ErrorContains(t, err, "output work/page.md: lies in the workspace")
	assert.Contains(t, hints(err)[0], "exclude")
	require.NoError(t, (&gateFlags{junit: "x.xml", summary: "-"}).checkReports(o))
}

// TestCheckWish: what could never be run is not sealed, and what protects nothing is told.
func TestCheckWish(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	a := &app{}
	a.streams.Err = &out
	w, err := wish.FromCommand([]string{"pytest"})
	require.NoError(t, err)
	w.ProtectedPaths = []string{"secrets"}
	require.NoError(t, a.checkWish(w, filepath.Join(dir, "wish.yaml")))
	assert.Equal(t, "sandbox: warning: secrets is not there, and so it is not protected\n", out.String())
	w.IOBoundary = "none"
	err = a.checkWish(w, filepath.Join(dir, "wish.yaml"))
	require.Error(t, err)
	assert.Contains(t, hints(err)[0], "io_boundary")
	w.GateCommands = nil
	require.ErrorContains(t, a.checkWish(w, "wish.yaml"), "names no command")
}

// TestAllowUnobserved: the flag is in the wish that is sealed on the spot, and so in the
// lock and its hash.
func TestAllowUnobserved(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		f := gateFlags{command: []string{"pytest"}, mode: modeExecute, repeats: 1, allowUnobserved: allowed}
		o, err := f.options(t.Context(), settings.Settings{})
		require.NoError(t, err)
		assert.Equal(t, allowed, o.Lock.Wish.AllowUnobserved)
	}
}
