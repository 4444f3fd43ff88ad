package sandbox

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// TestNeighbourOfAHog: a run that fills a small disk is named in the results of its neighbours,
// which are not done. Needs root, for the small disk.
func TestNeighbourOfAHog(t *testing.T) {
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
	// Its neighbour may look while the hog still writes.
	for name, says := range map[string]string{"hog": `this run holds (70MiB)`, "honest": `run hog-1 \(hog\) holds ([0-9.]+[KM]?i?B)`} {
		res := results[name]
		require.Equal(t, result.StatusDiskLimit, res.Status)
		require.Equal(t, result.FaultEnvironment, res.Fault)
		require.False(t, res.Conclusive())
		held := regexp.MustCompile(says).FindStringSubmatch(strings.Join(res.Warnings, "\n"))
		require.Len(t, held, 2, "%q", res.Warnings)
		size, err := policy.ParseSize(held[1])
		require.NoError(t, err)
		require.GreaterOrEqual(t, size, 64*policy.MiB)
		require.LessOrEqual(t, size, 70*policy.MiB)
	}
}
