package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/policy"
)

// TestShippedProfiles: the profile of contracts is the table of CX-02 and CX-05.
func TestShippedProfiles(t *testing.T) {
	profiles, err := policy.ParseProfiles(configs.Profiles(), "profiles.yaml")
	require.NoError(t, err)
	require.Len(t, profiles, 2)
	require.Equal(t, policy.Profile{
		Description: "Tool calls of the code execution contract",
		TimeoutMS:   policy.Range{Default: 30000, Min: 1000, Max: 600000},
		MemoryMB:    policy.Range{Default: 512, Min: 64, Max: 4096},
		CPUCores:    policy.Range{Default: 1, Min: 1, Max: 4},
		MaxChildren: policy.Range{Default: 10, Min: 0, Max: 100},

		StdoutBytes:      policy.Range{Default: 1 << 20, Max: 1 << 20},
		StderrBytes:      policy.Range{Default: 256 << 10, Max: 256 << 10},
		OutputFilesBytes: policy.Range{Default: 10 << 20, Max: 10 << 20},
		ArtifactsBytes:   policy.Range{Default: 10 << 20, Max: 10 << 20},
	}, profiles["contract"])
	require.EqualValues(t, 24*60*60*1000, profiles["evaluation"].TimeoutMS.Max)
}

const goodProfile = `schema: evalbox/profiles/v1
profiles:
  mine:
    description: Mine
    timeout_ms: { default: 5, min: 1, max: 10 }
    memory_mb: { default: 64, min: 64, max: 64 }
    cpu_cores: { default: 1, min: 1, max: 4 }
    max_children: { default: 0, min: 0, max: 0 }
    stdout_bytes: { default: 0, min: 0, max: 0 }
    stderr_bytes: { default: 0, min: 0, max: 0 }
    output_files_bytes: { default: 0, min: 0, max: 0 }
    artifacts_bytes: { default: 0, min: 0, max: 0 }
`

func TestParseProfiles(t *testing.T) {
	profiles, err := policy.ParseProfiles([]byte(goodProfile), "p.yaml")
	require.NoError(t, err)
	limit := profiles["mine"].TimeoutMS
	for value, has := range map[int64]bool{0: false, 1: true, 5: true, 10: true, 11: false} {
		require.Equal(t, has, limit.Has(value), value)
	}
	for name, test := range map[string]struct {
		old, replacement string
		wants            []string
	}{
		"another version":     {"profiles/v1", "profiles/v2", []string{`p.yaml:1: schema: want "evalbox/profiles/v1", have "evalbox/profiles/v2"`}},
		"an unknown key":      {"description: Mine", "desc: Mine", []string{`p.yaml:4: unknown key "desc" in profiles.mine`}},
		"a unit":              {"default: 5,", "default: 5s,", []string{`p.yaml:5: profiles.mine.timeout_ms.default: "5s" must be a whole number`}},
		"a limit less":        {"    cpu_cores: { default: 1, min: 1, max: 4 }\n", "", []string{"p.yaml:4: profiles.mine: must have cpu_cores"}},
		"a bound less":        {"min: 1, max: 10", "max: 10", []string{"p.yaml:5: profiles.mine.timeout_ms: must have default, min and max"}},
		"turned round":        {"min: 1, max: 10", "min: 10, max: 1", []string{"p.yaml:5: profiles.mine.timeout_ms: has a min of 10 above its max of 1"}},
		"a default outside":   {"default: 5,", "default: 11,", []string{"p.yaml:5: profiles.mine.timeout_ms: has a default of 11 outside of 1 to 10"}},
		"below what there is": {"min: 1, max: 10", "min: 0, max: 10", []string{"p.yaml:5: profiles.mine.timeout_ms: must be between 1 and "}},
		"no description":      {"description: Mine", "description: ''", []string{"p.yaml:4: profiles.mine: must have a description"}},
		"a bad name":          {"  mine:", "  -mine:", []string{"p.yaml:3: profiles: name"}},
		"several":             {"{ default: 0, min: 0, max: 0 }", "{ default: 1, min: 0, max: 0 }", []string{"max_children", "stdout_bytes", "artifacts_bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, goodProfile, test.old)
			_, err := policy.ParseProfiles([]byte(strings.ReplaceAll(goodProfile, test.old, test.replacement)), "p.yaml")
			for _, want := range test.wants {
				require.ErrorContains(t, err, want)
			}
		})
	}
	_, err = policy.ParseProfiles([]byte("schema: evalbox/profiles/v1\nprofiles: {}\n"), "p.yaml")
	require.ErrorContains(t, err, "p.yaml:2: profiles: must have at least one profile")
}

// TestEnvFormAndMeaning: the two parts of CheckEnv.
func TestEnvFormAndMeaning(t *testing.T) {
	env := map[string]string{"A": "1", "NVIDIA_X": "x", "a b": "1", "N": "x\x00y"}
	require.Len(t, policy.CheckEnv(env), 3)
	require.Len(t, policy.CheckEnvForm(env), 2)
}
