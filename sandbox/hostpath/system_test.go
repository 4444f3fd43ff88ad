package hostpath

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSystemFolders(t *testing.T) {
	for path, want := range map[string]struct{ shows, belongs bool }{
		"/etc": {true, true}, "/etc/cron.d": {true, true}, "/proc/1": {true, true}, "/run/docker": {true, true},
		"/usr": {false, true}, "/usr/local/data": {false, true}, "/lib64": {false, true},
		"/home": {true, true}, "/root": {true, true}, "/tmp": {true, true}, "/var": {true, true}, "/mnt": {true, true},
		"/var/lib": {false, true}, "/var/log": {false, true},
		"/var/lib/jobs": {false, false}, "/home/ada": {false, false}, "/tmp/out": {false, false},
		"/data": {false, false}, "/results/3": {false, false}, "/etcetera": {false, false}, "/opt/app/out": {false, false},
	} {
		require.Equal(t, want.shows, showsTooMuch(path), path)
		require.Equal(t, want.belongs, belongsToSystem(path), path)
	}
}
