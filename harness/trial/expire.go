package trial

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Expire removes the jobs that ended before a time, and those that were abandoned before it:
// a job without a result that no process runs. It returns their number. With dryRun it
// removes nothing. Other processes may use the log meanwhile.
func (l *Log) Expire(before time.Time, dryRun bool) (n int, err error) {
	err = l.locked(func() error { // so that no job begins, and no result is added
		expired, err := l.expired(before)
		if n = len(expired); err != nil || n == 0 || dryRun {
			return err
		}
		// The index comes first: after a crash in between, it is completed from the results
		// that are left, and the next call removes them.
		if err := l.dropLines(expired); err != nil {
			n = 0
			return err
		}
		var errs []error
		for id := range expired {
			if err := os.RemoveAll(l.jobPath(id, "")); err != nil { // no program writes there
				errs = append(errs, err)
				n--
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		err = l.failed(err)
	}
	return n, err
}

// expired returns the IDs of the jobs that [Log.Expire] removes. The directory of a job
// changes for the last time when the job begins, and when its result is written.
func (l *Log) expired(before time.Time) (map[string]bool, error) {
	ids := map[string]bool{}
	err := fsx.InRoot(l.dir, func(root *os.Root) error {
		return fsx.ReadDir(context.Background(), root, jobsDir, func(id string) error {
			info, err := root.Lstat(filepath.Join(jobsDir, id))
			if err != nil || !info.IsDir() || !info.ModTime().Before(before) {
				return err
			}
			lock, err := fsx.LockPath(l.jobPath(id, ""))
			if errors.Is(err, fsx.ErrLocked) {
				return nil // it runs
			}
			if err != nil {
				return err
			}
			ids[id] = true
			return lock.Close() // nobody takes it without the lock of the log
		})
	})
	return ids, err
}

// dropLines replaces the index by one without the lines of some jobs.
func (l *Log) dropLines(ids map[string]bool) error {
	file, err := fsx.Open(l.index())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	var kept bytes.Buffer
	for line, err := range indexLines.Read(file) {
		if err != nil {
			return err
		}
		if line.Torn {
			break
		}
		if r, err := decode[Result](line.Text, ResultSchemaV1); err == nil && ids[r.Job.ID] {
			continue
		}
		kept.Write(line.Text)
		kept.WriteByte('\n')
	}
	return fsx.WriteFile(l.index(), kept.Bytes(), 0o600, true)
}
