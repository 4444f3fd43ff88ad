package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/plan"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestSecretsOfAPlan(t *testing.T) {
	req := spec.Request{Image: "debian", Command: []string{"true"}, Env: map[string]string{"A": "1"}}
	plain, err := plan.Plan(req, spec.Layout{}, policy.Policy{}, spec.Host{})
	require.NoError(t, err)
	req.Secrets = []spec.Secret{{Name: "KEY"}, {Name: "TOKEN", File: "/secret/file"}}
	with, err := plan.Plan(req, spec.Layout{}, policy.Policy{}, spec.Host{})
	require.NoError(t, err)
	require.Equal(t, []string{"KEY", "TOKEN"}, with.Job.Secrets)
	require.Equal(t, []string{"A=1"}, with.Job.Env)
	require.Equal(t, plain.Class, with.Class)
	require.Equal(t, engine.ClassHash(plain.Class), engine.ClassHash(with.Class))

	for name, c := range map[string]struct {
		secrets []spec.Secret
		want    string
	}{
		"a variable as well": {[]spec.Secret{{Name: "A"}}, `secret "A": is a variable of the environment as well`},
		"twice":              {[]spec.Secret{{Name: "K"}, {Name: "K", File: "f"}}, `secret "K": is given twice`},
		"refused":            {[]spec.Secret{{Name: "NVIDIA_X"}}, `secret "NVIDIA_X": is refused`},
		"of the clock":       {[]spec.Secret{{Name: "LD_PRELOAD"}}, `secret "LD_PRELOAD": is set by the clock of the run`},
		"no name":            {[]spec.Secret{{Name: ""}}, `secret "": is not the name of an environment variable`},
	} {
		t.Run(name, func(t *testing.T) {
			req := req
			req.Secrets = c.secrets
			if name == "of the clock" {
				req.FakeClock = &spec.FakeClock{Library: "/l.so", At: time.Unix(1, 0)}
			}
			_, err := plan.Plan(req, spec.Layout{}, policy.Policy{}, spec.Host{})
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.ErrorContains(t, err, c.want)
		})
	}
}
