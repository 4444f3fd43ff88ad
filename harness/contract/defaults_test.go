package contract

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// TestSHA256: the hash is of what is executed, not of how it is written.
func TestSHA256(t *testing.T) {
	profiles := testProfiles(t)
	hash := func(text string) string {
		c, err := Parse([]byte(text), "c")
		require.NoError(t, err)
		return c.SHA256(profiles)
	}
	const plain = "tool_id: T-5\ninputs: {command: five, environment: {A: x, B: y}}\n"
	want := hash(plain)
	require.Len(t, want, 64)
	for _, same := range []string{
		`{"inputs": {"environment": {"B": "y", "A": "x"}, "command": "five"}, "tool_id": "T-5"}`,
		"# a comment\nexecution_id: other\n" + plain,
		"schema: evalbox/contract/v1\n" + plain + "sandbox: {profile: contract, timeout_ms: 30000, network: {enabled: false}, filesystem: {level: minimal}}\noutputs: {exit_code: 0, stdout: captured}\n",
		strings.Replace(plain, "command: five", "command: five, stdin: ~, arguments: [], working_directory: .", 1),
	} {
		require.Equal(t, want, hash(same), same)
	}
	for _, other := range []string{
		strings.Replace(plain, "five", "six", 1),
		strings.Replace(plain, "A: x", "A: z", 1),
		plain + "sandbox: {timeout_ms: 30001}\n",
		plain + "metadata: {purpose: another}\n",
		strings.Replace(plain, "command: five", "command: five, stdin: ''", 1),
		plain + "outputs: {stdout: {expected: ''}}\n",
	} {
		require.NotEqual(t, want, hash(other), other)
	}

	// What a profile means is part of what is approved.
	changed := policy.Profiles{"contract": profiles["contract"]}
	p := changed["contract"]
	p.MemoryMB.Default = 1024
	changed["contract"] = p
	c, err := Parse([]byte(plain), "c")
	require.NoError(t, err)
	require.NotEqual(t, want, c.SHA256(changed))
	require.Equal(t, want, c.WithDefaults(profiles).SHA256(changed), "defaults are filled in once")
}
