package sandbox

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type seccompRule struct {
	Names    []string         `json:"names"`
	Action   string           `json:"action"`
	Errno    *uint            `json:"errnoRet,omitempty"`
	Args     []map[string]any `json:"args,omitempty"`
	Includes map[string]any   `json:"includes,omitempty"`
	Excludes map[string]any   `json:"excludes,omitempty"`
}

func rulesOf(t *testing.T, profile string) (rules []seccompRule) {
	t.Helper()
	var all struct {
		DefaultAction string        `json:"defaultAction"`
		DefaultErrno  uint          `json:"defaultErrnoRet"`
		Syscalls      []seccompRule `json:"syscalls"`
	}
	require.NoError(t, json.Unmarshal([]byte(profile), &all))
	require.Equal(t, "SCMP_ACT_ERRNO", all.DefaultAction)
	require.EqualValues(t, 1, all.DefaultErrno, "EPERM")
	return all.Syscalls
}

// TestNoForkProfile shows what differs from Docker's profile, and that nothing else
// does.
func TestNoForkProfile(t *testing.T) {
	before, after := rulesOf(t, seccompJSON), rulesOf(t, noForkJSON())
	about := func(r seccompRule) bool {
		return slices.ContainsFunc(r.Names, func(n string) bool { return slices.Contains([]string{"fork", "vfork", "clone", "clone3"}, n) })
	}
	requireGolden(t, "seccomp-nofork.json", slices.DeleteFunc(slices.Clone(after), func(r seccompRule) bool { return !about(r) }))

	require.Len(t, after, len(before))
	for i, was := range before {
		is := after[i]
		was.Names, is.Names = slices.Clone(was.Names), slices.Clone(is.Names)
		if len(was.Names) > 1 {
			was.Names = slices.DeleteFunc(was.Names, func(n string) bool { return slices.Contains([]string{"fork", "vfork", "clone", "clone3"}, n) })
		}
		if slices.Equal(was.Names, []string{"clone"}) {
			was.Args, is.Args = nil, nil
		}
		require.Equal(t, was, is)
	}
	require.NotEqual(t, seccompFor(false).SHA256, seccompFor(true).SHA256)
	require.True(t, noForkJSON() == seccompFor(true).profile())
	require.True(t, seccompJSON == seccompFor(false).profile())
}

func TestNoForkProfileRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, profile := range map[string]string{
		"no JSON":         "{",
		"no rules":        `{"syscalls": []}`,
		"rules of others": strings.ReplaceAll(seccompJSON, "2114060288", "1"),
		"no clone3":       strings.ReplaceAll(seccompJSON, `["clone3"]`, `["clone4"]`),
		"no names":        `{"syscalls": [{"names": 3, "action": "SCMP_ACT_ALLOW"}]}`,
	} {
		_, err := withoutFork(profile)
		require.Error(t, err, name)
	}
}
