package rung

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBehaviorHash(t *testing.T) {
	assert.Equal(t, sum("seed=42\na\nb"), BehaviorHash("b\na\n", 42))
	assert.Equal(t, sum("seed=42\na\nb"), BehaviorHash("\r\n  a \t\x1c\u00a0b\u2028\n\v", 42), "lines and spaces are those of Python")
	assert.Equal(t, sum("seed=42\na\na"), BehaviorHash("a\na", 42), "the same line twice is two lines")
	assert.Equal(t, sum("seed=-1\n"), BehaviorHash("", -1))
	assert.NotEqual(t, BehaviorHash("same", 42), BehaviorHash("same", 137), "which is why a gate leaves the seed out")
}

// TestContentHash has hashes of json.dumps(content, sort_keys=True).
func TestContentHash(t *testing.T) {
	for artifacts, canonical := range map[string]string{
		`{}`:                                `{}`,
		`{"b": 1, "a": [true, null]}`:       `{"a": [true, null], "b": 1}`,
		`{"a": "é\u0001\u007f😀\"\\/\n<&>"}`: `{"a": "\u00e9\u0001\u007f\ud83d\ude00\"\\/\n<&>"}`,
		`{"a": [1.0, 1.50, 1e2, 1E-7, 1e16, 123456789012345678, 1e15, 0.0001, -0.0, 2.5e-5]}`: `{"a": [1.0, 1.5, 100.0, 1e-07, 1e+16, 123456789012345678, 1000000000000000.0, 0.0001, -0.0, 2.5e-05]}`,
		`{"a": 99999999999999999999999, "b": -0}`:                                             `{"a": 99999999999999999999999, "b": 0}`,
		`{"a": {}, "b": []}`: `{"a": {}, "b": []}`,
	} {
		var b Bundle
		require.NoError(t, json.Unmarshal([]byte(artifacts), &b.Artifacts))
		b.ServiceID, b.Action, b.Timestamp, b.PrevHash = "s", "act", "t", Genesis
		got, err := ContentHash(b)
		require.NoError(t, err)
		want := `{"action": "act", "artifacts": ` + canonical + `, "prev_hash": "genesis", "service_id": "s", "timestamp": "t"}`
		assert.Equal(t, sum(want), got, artifacts)
	}
	for _, bad := range []string{`{"a": 1e999}`, `{"a": ` + strings.Repeat("9", maxDigits+1) + `}`} {
		var b Bundle
		require.NoError(t, json.Unmarshal([]byte(bad), &b.Artifacts))
		_, err := ContentHash(b)
		assert.Error(t, err)
	}
}

func chainOf(t *testing.T, n int) []Bundle {
	t.Helper()
	var chain []Bundle
	for range n {
		b, err := Append(chain, Bundle{ServiceID: "s", Action: "a", Timestamp: "t", Artifacts: map[string]json.RawMessage{"x": json.RawMessage("1")}, Metadata: map[string]json.RawMessage{}})
		require.NoError(t, err)
		chain = append(chain, b)
	}
	return chain
}

func TestVerifyChain(t *testing.T) {
	chain := chainOf(t, 3)
	assert.Equal(t, "ev-000002", chain[2].BundleID)
	assert.Equal(t, chain[1].ContentHash, chain[2].PrevHash)
	for name, c := range map[string]struct {
		change func(chain []Bundle) []Bundle
		want   string
	}{
		"unbroken": {func(c []Bundle) []Bundle { return c }, ""},
		"empty":    {func([]Bundle) []Bundle { return []Bundle{} }, ""},
		"metadata": {func(c []Bundle) []Bundle {
			c[1].Metadata = map[string]json.RawMessage{"x": json.RawMessage("1")}
			return c
		}, ""},
		"changed":   {func(c []Bundle) []Bundle { c[1].Action = "b"; return c }, "bundle 1 is not what was hashed"},
		"left out":  {func(c []Bundle) []Bundle { return append(c[:1:1], c[2]) }, "bundle 1 is not chained"},
		"beginning": {func(c []Bundle) []Bundle { return c[1:] }, "bundle 0 is not chained"},
		"renamed":   {func(c []Bundle) []Bundle { c[2].BundleID = "ev-7"; return c }, `it must be "ev-000002"`},
		"moved":     {func(c []Bundle) []Bundle { c[2].ChainPosition = 7; return c }, "number 7"},
		"rehashed": {func(c []Bundle) []Bundle {
			c[1].Action = "b"
			c[1].ContentHash, _ = ContentHash(c[1])
			return c
		}, "bundle 2 is not chained"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(c.change(chainOf(t, 3)))
			require.NoError(t, err)
			problems, err := VerifyChain(text)
			require.NoError(t, err)
			if c.want == "" {
				assert.Empty(t, problems)
			} else {
				assert.Contains(t, strings.Join(problems, "\n"), c.want)
			}
		})
	}
	for _, bad := range []string{"{}", "[1]", "[{}]", "["} {
		_, err := VerifyChain([]byte(bad))
		assert.Error(t, err)
	}
}

func TestScore(t *testing.T) {
	text, err := json.Marshal(chainOf(t, 1)[0])
	require.NoError(t, err)
	whole := string(text)
	for name, c := range map[string]struct {
		old, new  string
		score     int
		compliant bool
	}{
		"as it is":             {`"s"`, `"s"`, 9, true},
		"changed":              {`"action":"a"`, `"action":"b"`, 8, true},
		"no timestamp":         {`"timestamp":"t"`, `"timestamp":""`, 7, true},
		"null timestamp":       {`"timestamp":"t"`, `"timestamp":null`, 7, true},
		"timestamp left out":   {`"timestamp":"t",`, ``, 6, false},
		"place is true":        {`"chain_position":0`, `"chain_position":true`, 8, true},
		"place is 0.0":         {`"chain_position":0`, `"chain_position":0.0`, 8, true},
		"place is negative":    {`"chain_position":0`, `"chain_position":-1`, 8, true},
		"no name":              {`"bundle_id":"ev-000000"`, `"bundle_id":""`, 8, true},
		"artifacts are a list": {`{"x":1}`, `[1]`, 7, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, whole, c.old)
			a, err := Score([]byte(strings.Replace(whole, c.old, c.new, 1)))
			require.NoError(t, err)
			assert.Equal(t, c.score, a.Score, a.Gaps)
			assert.Equal(t, c.compliant, a.Compliant)
			assert.Len(t, a.Gaps, 9-c.score)
		})
	}
	nothing, err := Score([]byte("{}"))
	require.NoError(t, err)
	assert.Equal(t, 0, nothing.Score)
	for _, bad := range []string{"", "[]", "null", `{"a": 1, "a": 2}`} {
		_, err := Score([]byte(bad))
		assert.Error(t, err, bad)
	}
}
