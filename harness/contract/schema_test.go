package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/result"
)

// The words of an outcome are those of the code.
func TestOutcomeWords(t *testing.T) {
	s := schematest.Load(t, OutcomeSchemaJSON)
	require.Equal(t, slices.Concat([]string{StatusRefused, StatusPlanned, StatusFailed, StatusAbandoned, StatusAnswered, StatusUnreachable, StatusBlocked}, schematest.Names(result.Statuses())),
		schematest.Enum(t, s, "status"))
	require.Equal(t, []string{RetainSession, RetainEvidence, ""}, schematest.Enum(t, s.Defs["evidence"], "retention"))
	var names []string
	codes := schematest.Enum(t, s.Defs["violation"], "code")
	for _, p := range points {
		names = append(names, p.point)
		require.Contains(t, schematest.Enum(t, s.Defs["check_point"], "list"), p.list)
	}
	require.Equal(t, names, schematest.Enum(t, s.Defs["check_point"], "point"))
	require.Contains(t, codes, "DT-01")
	meanings, actions := schematest.Enum(t, s.Defs["exit_meaning"], "meaning"), schematest.Enum(t, s.Defs["exit_meaning"], "action")
	for code := -64; code <= 256; code++ {
		for _, ctx := range []result.ExitContext{{}, {TimedOut: true}, {OOM: true}, {Known: true}, {Known: true, Canceled: true, Signal: 9}} {
			m := result.ExplainExit(code, ctx)
			require.Contains(t, meanings, m.Meaning)
			require.Contains(t, actions, m.Action)
		}
	}
}

// What the form alone tells to be wrong, the schema refuses as the rules do.
func TestContractSchemaRefusals(t *testing.T) {
	s := schematest.Load(t, ContractSchemaJSON)
	rules := shippedRules(t)
	require.Empty(t, rules.Examine([]byte(`{"tool_id":"TL-010","inputs":{"command":"python3"}}`)).Violations)
	for _, text := range []string{
		`{"inputs":{"command":"python3"}}`,
		`{"tool_id":"","inputs":{"command":"python3"}}`,
		`{"tool_id":"TL-010","inputs":{"command":""}}`,
		`{"tool_id":"TL-010","execution_id":"../x","inputs":{"command":"python3"}}`,
		`{"tool_id":"TL-010","inputs":{"command":"python3"},"sandbox":{"timeout_ms":-4}}`,
		`{"tool_id":"TL-010","inputs":{"command":"python3"},"sandbox":{"memory_mb":0}}`,
		`{"tool_id":"TL-010","inputs":{"command":"python3"},"sandbox":{"cpu_cores":0}}`,
		`{"tool_id":"TL-010","inputs":{"command":"python3"},"sandbox":{"processes":{"max_children":-1}}}`,
		`{"tool_id":"TL-010","inputs":{"command":"python3"},"outputs":{"capture":{"stdout_bytes":-1}}}`,
		`{"tool_id":"TL-010","inputs":{"command":"python3"},"outputs":{"stdout":{"expected":"a","pattern":"a"}}}`,
		`{"tool_id":"TL-010","inputs":{"command":"python3"},"determinism":{"clock":"tomorrow"}}`,
	} {
		require.True(t, json.Valid([]byte(text)))
		schematest.Invalid(t, s, []byte(text))
		require.NotEmpty(t, rules.Examine([]byte(text)).Violations, text)
	}
	for _, clock := range []string{"", "2030-01-02T03:04:05Z", "1971-01-02T03:04:05+02:00"} {
		schematest.Valid(t, s, fmt.Appendf(nil, `{"tool_id":"TL-010","inputs":{"command":"python3"},"determinism":{"clock":%q}}`, clock))
	}
}
