package mcp

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
)

// quotaLimits are the quotas of a session.
type quotaLimits struct {
	runs int
	time time.Duration
	disk policy.Size
}

// quota counts what a session has used. Runs that go on when a quota is reached go on to their
// end, so the sums of time and disk can exceed it by what runs then. Its methods may be called
// concurrently.
type quota struct {
	limits quotaLimits

	mu   sync.Mutex
	runs int
	time time.Duration
	disk policy.Size
}

// A quotaError is a quota that is used up.
type quotaError struct{ name, limit string }

func (e *quotaError) Error() string {
	return fmt.Sprintf("the quota --%s of this session is used up: %s", e.name, e.limit)
}

// Hint says who can raise it.
func (e *quotaError) Hint() string {
	return "earlier results can still be read; the operator starts a new session, or gives a higher --" + e.name
}

// take counts a run that is about to begin.
func (q *quota) take() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch l := q.limits; {
	case q.runs >= l.runs:
		return &quotaError{"max-runs", strconv.Itoa(l.runs)}
	case q.time >= l.time:
		return &quotaError{"max-time", l.time.String()}
	case q.disk >= l.disk:
		return &quotaError{"max-disk", l.disk.String()}
	}
	q.runs++
	return nil
}

// giveBack takes back a run that never began.
func (q *quota) giveBack() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.runs--
}

// charge adds bytes that are written for a call whether or not it runs something.
func (q *quota) charge(bytes int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.disk >= q.limits.disk {
		return &quotaError{"max-disk", q.limits.disk.String()}
	}
	q.disk += policy.Size(bytes)
	return nil
}

// use adds the time of a program, and what it left on the disk.
func (q *quota) use(seconds float64, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.time += policy.Seconds(seconds)
	q.disk += policy.Size(bytes)
}

// usage is what is used and what there is, as a result has it.
func (q *quota) usage() map[string]any {
	q.mu.Lock()
	defer q.mu.Unlock()
	return map[string]any{
		"runs": q.runs, "max_runs": q.limits.runs,
		"time_seconds": q.time.Seconds(), "max_time_seconds": q.limits.time.Seconds(),
		"disk_bytes": int64(q.disk), "max_disk_bytes": int64(q.limits.disk),
	}
}

// sizeOf adds up the files below a directory. Links are not followed. What cannot be read does not
// count.
func sizeOf(ctx context.Context, dir string) (bytes int64) {
	root, err := fsx.OpenRoot(dir)
	if err != nil {
		return 0
	}
	defer root.Close()
	_ = fsx.Walk(ctx, root, func(_ string, info fs.FileInfo) (bool, error) { // the rest does not count
		if !info.IsDir() {
			bytes += info.Size()
		}
		return true, nil
	})
	return bytes
}
