package sandbox

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/plan"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestContainersOfAClassRunAnyOfItsJobs: a container that was prepared with the class of
// one request runs the job of another one.
func TestContainersOfAClassRunAnyOfItsJobs(t *testing.T) {
	planned := func(req Request) spec.Spec {
		layout, err := spec.NewLayout(req)
		require.NoError(t, err)
		s, err := plan.Plan(req, layout, policy.Policy{}, spec.Host{})
		require.NoError(t, err)
		s.Class.Image.ID = "sha256:01"
		return s
	}
	first := planned(Request{ID: "first", Command: []string{"echo", "one"}, Env: map[string]string{"N": "1"}, Final: "/results/one"})
	second := planned(Request{ID: "second", Name: "other", Command: []string{"echo", "two"}, Stdin: true, NoFork: true, Input: "/data/two"})
	require.Equal(t, engine.ClassHash(first.Class), engine.ClassHash(second.Class))

	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		p.Print(strings.Join(append(p.Job.Command, p.Job.Env...), " "))
		return 0
	})
	dir := t.TempDir()
	for name, jobs := range map[string][2]spec.Spec{"first-second": {first, second}, "second-first": {second, first}} {
		c, err := fake.Prepare(t.Context(), jobs[0].Class, engine.Meta{Name: name,
			Sources: engine.Sources{spec.RoleInput: dir, spec.RoleFinal: dir, spec.RolePasswd: dir, spec.RoleGroup: dir}})
		require.NoError(t, err)
		var stdout bytes.Buffer
		require.NoError(t, c.Start(t.Context(), jobs[1].Job, engine.Streams{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stdout}))
		end, err := c.Wait(t.Context())
		require.NoError(t, err)
		require.Zero(t, end.ExitCode)
		require.Equal(t, strings.Join(append(jobs[1].Job.Command, jobs[1].Job.Env...), " "), stdout.String())
		require.NoError(t, c.Remove(t.Context()))
	}
	require.Empty(t, fake.Left())
}
