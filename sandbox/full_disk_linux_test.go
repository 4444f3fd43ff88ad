package sandbox

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// TestFullDiskOfFinal: a run that fills a small disk ends itself and the run beside it, and neither
// result blames its program. Needs root, for the small disk.
func TestFullDiskOfFinal(t *testing.T) {
	disk := t.TempDir()
	require.NoError(t, syscall.Mount("none", disk, "tmpfs", 0, "size=96m"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	started := make(chan struct{})
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		if p.Job.Name == "hog" {
			<-started
			if os.WriteFile(p.Final("big"), make([]byte, 70<<20), 0o644) != nil {
				return 1
			}
		} else {
			if os.WriteFile(p.Final("small"), make([]byte, 4<<10), 0o644) != nil {
				return 1
			}
			close(started)
		}
		return endsOnTerm(p)
	})
	r := newFakeRunner(t, fake)
	results := map[string]*result.Result{}
	var mu sync.Mutex
	var runs sync.WaitGroup
	for _, name := range []string{"hog", "honest"} {
		runs.Go(func() {
			req := command("dd")
			req.ID, req.Name, req.Final, req.Limits.Disk = name+"-1", name, filepath.Join(disk, name), policy.GiB
			res, err := r.Run(t.Context(), req)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			results[name] = res
		})
	}
	runs.Wait()
	for _, name := range []string{"hog", "honest"} {
		res := results[name]
		require.Equal(t, result.StatusDiskLimit, res.Status)
		require.Equal(t, result.FaultEnvironment, res.Fault)
		require.Contains(t, res.Explanation, "the disk of ./final was nearly full")
		require.False(t, res.Conclusive())
	}
}
