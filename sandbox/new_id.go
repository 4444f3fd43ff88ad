package sandbox

import "time"

// NewID makes an ID of a run that is unique on any number of hosts and sorts by time.
// [Runner.Run] makes one itself for a request without; whoever must know the ID before
// the run makes it so.
func NewID(now time.Time) string { return newID(now) }
