package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
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
