package sandbox

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestPreloadInTheResult: the result says whether the interpreter was used, and warns if it was not.
func TestPreloadInTheResult(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		command []string
		modules []string
		why     string // of the engine
		dies    bool
		want    *result.Preload
		warning string
	}{
		"not asked for": {},
		"used":          {modules: []string{"json"}, want: &result.Preload{Modules: []string{"json"}, Used: true}},
		"failed": {modules: []string{"json"}, why: "MemoryError: ", want: &result.Preload{Modules: []string{"json"}, Reason: "MemoryError: "},
			warning: "the program started without its preloaded modules: MemoryError: "},
		"another program": {command: []string{"ls"}, modules: []string{"json"}, why: "never asked",
			want: &result.Preload{Modules: []string{"json"}, Reason: "the command is not python3"}, warning: "the command is not python3"},
		"no report": {modules: []string{"json"}, dies: true,
			want: &result.Preload{Modules: []string{"json"}, Reason: "unknown: the end of the program was not reported"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := enginetest.NewFake(func(p *enginetest.Program) int {
				if test.dies {
					p.KillInit()
				}
				return 0
			})
			fake.Preload = func(spec.Class) string { return test.why }
			r := newFakeRunner(t, fake)
			req := Request{Image: "debian", Command: test.command, Preload: test.modules}
			if req.Command == nil {
				req.Command = []string{"python3", "-c", "1"}
			}
			res, err := r.Run(t.Context(), req)
			require.Equal(t, test.dies, err != nil, err)
			require.Equal(t, test.want, res.Preload)
			if test.warning == "" {
				require.NotContains(t, strings.Join(res.Warnings, "\n"), "preload")
			} else {
				require.Contains(t, strings.Join(res.Warnings, "\n"), test.warning)
			}
			text, err := res.Encode()
			require.NoError(t, err)
			again, err := result.Decode(text)
			require.NoError(t, err)
			require.Equal(t, res.Preload, again.Preload)
		})
	}
}
