//go:build linux

package spec

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write seccomp.json anew")

func TestSeccompIsMobysCurrentProfile(t *testing.T) {
	want, err := json.Marshal(seccomp.DefaultProfile())
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("seccomp.json", want, 0o644))
	}
	require.True(t, SeccompProfile == string(want), "seccomp.json is not the module's profile; run: go test ./sandbox/spec -run TestSeccomp -update")

	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`github\.com/moby/profiles/seccomp (v\S+)`).FindStringSubmatch(string(mod))
	require.Len(t, version, 2)
	require.Equal(t, seccompName, "moby/profiles "+version[1])
}
