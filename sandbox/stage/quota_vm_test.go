//go:build linux && quota

package stage

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/disk"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestQuotaForARun takes a kernel with quotas; see sandbox/disk.
func TestQuotaForARun(t *testing.T) {
	place := t.TempDir()
	image, volume := filepath.Join(place, "image"), filepath.Join(place, "volume")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 200<<20))
	require.NoError(t, os.Mkdir(volume, 0o755))
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota", image},
		{"mount", "-o", "loop,prjquota", image, volume},
	} {
		out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	t.Cleanup(func() { require.NoError(t, exec.Command("umount", "-l", volume).Run()) })
	require.NoError(t, os.Mkdir(filepath.Join(volume, "tmp"), 0o755))
	for _, dir := range []string{filepath.Dir(place), place} {
		require.NoError(t, os.Chmod(dir, 0o755)) // for the program's user
	}
	t.Setenv("TMPDIR", filepath.Join(volume, "tmp")) // of each ./final
	store, err := record.Open(filepath.Join(volume, "state"))
	require.NoError(t, err)
	require.NoError(t, store.Prepare())
	testBound(t, spec.DiskQuota, store)
	require.NoError(t, disk.CanQuota(volume))
}
