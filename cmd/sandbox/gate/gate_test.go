package gate

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func TestGateCode(t *testing.T) {
	for status, code := range map[evidence.Status]int{
		evidence.Pass: 0, evidence.Blocked: 1, evidence.NeedInfo: 3, "": 1, "pass": 1,
	} {
		assert.Equal(t, code, cli.ExitCode(ended(status), nil), status)
	}
	for outcome, code := range map[gate.Outcome]int{gate.ReplaySame: 0, gate.ReplayDifferent: 1, gate.ReplayCannot: 3, "": 1} {
		assert.Equal(t, code, cli.ExitCode(replayed(outcome), nil), outcome)
	}
}
