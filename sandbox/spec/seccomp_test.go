//go:build linux

package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the profiles anew")

func TestSeccompIsMobysCurrentProfile(t *testing.T) {
	monitor := seccomp.DefaultProfile()
	monitor.Syscalls = slices.DeleteFunc(monitor.Syscalls, func(rule *seccomp.Syscall) bool {
		return rule.Includes != nil && slices.Contains(rule.Includes.Caps, "CAP_DAC_READ_SEARCH")
	})
	require.Len(t, monitor.Syscalls, len(seccomp.DefaultProfile().Syscalls)-1)
	require.Contains(t, SeccompProfile, `"open_by_handle_at"`)
	require.NotContains(t, SeccompMonitor, "open_by_handle_at")
	for name, c := range map[string]struct {
		profile *seccomp.Seccomp
		text    string
	}{"seccomp.json": {seccomp.DefaultProfile(), SeccompProfile}, "seccomp_monitor.json": {monitor, SeccompMonitor}} {
		want, err := json.Marshal(c.profile)
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(name, want, 0o644))
		} else {
			require.True(t, c.text == string(want), "%s is not the module's profile; run: go generate ./sandbox/spec", name)
		}
	}

	sum := sha256.Sum256([]byte(SeccompProfile))
	require.Equal(t, seccompHash, hex.EncodeToString(sum[:]))

	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`github\.com/moby/profiles/seccomp (v\S+)`).FindStringSubmatch(string(mod))
	require.Len(t, version, 2)
	require.Equal(t, seccompName, "moby/profiles "+version[1])
}
