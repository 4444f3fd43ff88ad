package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestUnenforcedLimits: a limit that was asked for is enforced, or the run is refused. A default is
// not asked for.
func TestUnenforcedLimits(t *testing.T) {
	req := scriptRequest()
	req.Host.Unenforced, req.Host.Filter = []string{spec.LimitPIDs, spec.LimitSeccomp}, "RuntimeDefault"
	req.Limits.PIDs = 0
	got, err := planOf(req, policy.Policy{})
	require.NoError(t, err)
	require.Equal(t, req.Host.Unenforced, got.Class.Unenforced)
	require.Equal(t, spec.Seccomp{Name: "RuntimeDefault"}, got.Class.Seccomp)

	req.Limits.PIDs = 10
	_, err = planOf(req, policy.Policy{})
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "pids-limit", field.Field)
	require.Contains(t, field.Hint, "SANDBOX_ALLOW_UNENFORCED=true")

	_, err = planOf(req, policy.Policy{AllowUnenforced: true})
	require.NoError(t, err)

	req.Host.Unenforced = []string{spec.LimitSwap}
	got, err = planOf(req, policy.Policy{})
	require.NoError(t, err)
	require.Equal(t, spec.DefaultSeccomp(), got.Class.Seccomp)
}
