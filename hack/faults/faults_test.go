//go:build linux

package main

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// worst is the part of the table that the tests carry out: each fault at the steps where it hurts most, with -short at
// the first of them. The whole table is `make soak`.
var worst = []struct {
	fault string
	steps []string
}{
	{"none", []string{"ended"}},
	{"controller killed", []string{"create", "start", "job", "running", "ended", "publishing", "collecting", "result"}},
	{"controller interrupted", []string{"create", "started", "running", "collecting"}},
	{"controller interrupted twice", []string{"record", "scored"}},
	{"controller and engine killed (live-restore)", []string{"scored"}},
	{"engine killed (live-restore)", []string{"running"}},
	{"engine killed", []string{"start", "scored"}},
	{"engine stopped", []string{"running"}},
	{"engine frozen as the program ends", []string{"scored"}},
	{"containerd killed", []string{"running"}},
	{"container killed", []string{"running"}},
	{"container terminated", []string{"running", "ending"}},
	{"container restarted", []string{"scored"}},
	{"container paused", []string{"running"}},
	{"request refused", []string{"start", "job", "result"}},
	{"answer swallowed", []string{"create", "attach", "start"}},
	{"answer cut", []string{"image", "create"}},
	{"answer {}", []string{"create", "start"}},
	{"answer 500", []string{"create", "attach", "start"}},
	{"streams cut", []string{"scored"}},
	{"state directory full", []string{"create", "running"}},
	{"state directory read-only", []string{"ending"}},
	{"final full", []string{"running"}},
	{"final read-only", []string{"create"}},
	{"engine's disk full", []string{"running"}},
	{"record deleted", []string{"running"}},
	{"journal deleted", []string{"running"}},
	{"log deleted and controller killed", []string{"scored"}},
	{"clock an hour ahead", []string{"running"}},
	{"clock an hour behind", []string{"scored"}},
	{"controller terminated twice at once", []string{"running", "publishing"}},
	{"connection cut past the time limit (killed)", []string{"running"}},
	{"controller stopped past the time limit (own end)", []string{"running", "ended"}},
	{"container paused past the time limit", []string{"scored"}},
	{"final replaced by a link", []string{"running", "publishing", "collecting"}},
	{"journal.json half", []string{"gc", "run"}},
	{"result.json empty", []string{"ls", "show"}},
	{"computes beside six that compute", []string{"verdict"}},
	{"batch killed as the grader runs", []string{"verdict"}},
}

// TestEngineFaults: under each fault nothing is false, lost, left or harmed.
func TestEngineFaults(t *testing.T) {
	require.Zero(t, os.Geteuid(), "a private engine needs root")
	bin, err := buildBinaries()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(bin.dir)) })
	l, err := newLab(t.Context(), bin)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.close()) })
	n := 0
	for _, row := range worst {
		if testing.Short() {
			row.steps = row.steps[:1]
		}
		is := func(f fault) bool { return f.name == row.fault }
		g := grids[slices.IndexFunc(grids, func(g grid) bool { return slices.ContainsFunc(g.faults, is) })]
		f := g.faults[slices.IndexFunc(g.faults, is)]
		for _, name := range row.steps {
			s := g.steps[slices.IndexFunc(g.steps, func(s step) bool { return s.name == name })]
			p := programs[n%len(programs)]
			n++
			t.Run(f.name+" at "+s.name, func(t *testing.T) {
				require.True(t, f.applies(s))
				r := l.run(t.Context(), s, f, p)
				require.Empty(t, r.Err, r.Log)
				require.False(t, r.bad(), "%s: %s, left %q, harmed %q\n%s", r.verdict, r.Why, r.Left, r.Harmed, r.Log)
			})
		}
	}
}
