package stage

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/collect"
	"github.com/evalbox/evalbox/sandbox/record"
)

const (
	// hogBudget bounds the search for runs that fill a disk, hogRecords the newest records that
	// are looked at, hogEntries the entries of each, and hogsNamed the names in the warning.
	hogBudget  = 10 * time.Second
	hogRecords = 256
	hogEntries = 100_000
	hogsNamed  = 3
	// hogShare is the part of the files of all runs that a run must hold to be named.
	hogShare = 10
)

// hog is a run that holds files on a disk.
type hog struct {
	id, name string
	bytes    int64
}

// NameHogs warns which runs of this state directory hold the most on the disk of ./final, of
// those that were running at the same time. It is for a run that was ended because that disk was
// nearly full. Files that were deleted and are still open are not found.
func (s *Stage) NameHogs(ctx context.Context) {
	if s.Copied() || s.Plan.Job.Final == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hogBudget)
	defer cancel()
	if text := hogText(s.hogs(ctx), s.Plan.Job.RunID); text != "" {
		s.Warn("%s", text)
	}
}

// hogText names the largest runs. It is pure.
func hogText(hogs []hog, own string) string {
	var all int64
	for _, h := range hogs {
		all += h.bytes
	}
	slices.SortFunc(hogs, func(a, b hog) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.id, b.id)) })
	var texts []string
	for _, h := range hogs[:min(len(hogs), hogsNamed)] {
		if h.bytes == 0 || h.bytes*hogShare < all {
			break
		}
		who := "run " + h.id
		switch {
		case h.id == own:
			who = "this run"
		case h.name != "":
			who += " (" + h.name + ")"
		}
		texts = append(texts, fmt.Sprintf("%s holds %v", who, policy.Size(h.bytes)))
	}
	if len(texts) == 0 {
		return "the disk of ./final was nearly full, and no run of this state directory holds much of it"
	}
	return "the disk of ./final was nearly full: of the runs at that time " + strings.Join(texts, ", ")
}

// hogs measures this run, and those that ran at the same time.
func (s *Stage) hogs(ctx context.Context) []hog {
	ids, err := s.Store.IDs()
	if err != nil {
		return nil
	}
	slices.Sort(ids)
	slices.Reverse(ids) // IDs that we make sort by time
	disk, err := os.Stat(s.Plan.Job.Final)
	if err != nil {
		return nil
	}
	began, err := os.Stat(filepath.Join(s.Dir, record.SpecFile))
	if err != nil {
		return nil
	}
	var hogs []hog
	for _, id := range ids[:min(len(ids), hogRecords)] {
		if ctx.Err() != nil {
			break
		}
		ended, err := os.Stat(filepath.Join(s.Store.RecordDir(id), record.ResultFile))
		if err == nil && ended.ModTime().Before(began.ModTime()) {
			continue
		}
		r, err := s.Store.Load(id)
		if err != nil || r.Spec.Job.Final == "" {
			continue
		}
		if info, err := os.Stat(r.Spec.Job.Final); err == nil && onOneDisk(info, disk) {
			hogs = append(hogs, hog{id, r.Spec.Job.Name, diskUsage(ctx, r.Spec.Job.Final)})
		}
	}
	return hogs
}

func onOneDisk(a, b os.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, also := b.Sys().(*syscall.Stat_t)
	return ok && also && x.Dev == y.Dev
}

// diskUsage adds up what a directory holds; it is 0 for one that cannot be read.
func diskUsage(ctx context.Context, dir string) (bytes int64) {
	_ = fsx.InRoot(dir, func(root *os.Root) error {
		bytes, _ = collect.Usage(ctx, root, 1<<62, hogEntries)
		return nil
	})
	return bytes
}
