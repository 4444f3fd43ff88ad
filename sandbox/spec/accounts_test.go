package spec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAccountFiles: each ID has exactly one name.
func TestAccountFiles(t *testing.T) {
	for user, want := range map[string][2]string{
		"70000:70001":   {"sandbox:x:70000:70001::/tmp:/bin/sh", "sandbox:x:70001:"},
		"0:0":           {"root:x:0:0:root:/root:/bin/sh", "root:x:0:"},
		"65534:33":      {"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin", "www-data:x:33:"},
		"33:1000":       {"www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin", "sandbox:x:1000:"},
		"1000:27":       {"sandbox:x:1000:27::/tmp:/bin/sh", "sudo:x:27:"},
		"655349:655349": {"sandbox:x:655349:655349::/tmp:/bin/sh", "sandbox:x:655349:"},
	} {
		ids := strings.Split(user, ":")
		for i, file := range AccountFiles(user) {
			var lines []string
			for line := range strings.Lines(file.Text) {
				if strings.Split(strings.TrimSpace(line), ":")[2] == ids[i] {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			require.Equal(t, []string{want[i]}, lines, "%s for %s", file.Target, user)
		}
	}
}
