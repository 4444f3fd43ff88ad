package contract

import "strings"

// StatusFailed is a contract whose execution did not begin because we failed: the
// engine cannot be reached, the image is not there.
const StatusFailed = "failed"

// NotBegun is the outcome of a document whose execution did not begin for a reason that
// lies not in it, for callers that want an outcome in any case; [Executor.ExecuteText]
// has none then, but an error. What the document breaks is in it all the same.
func (x *Executor) NotBegun(text []byte, source string, err error) *Outcome {
	run := x.examine(text, source)
	o := run.outcome
	o.Status, o.Error = StatusFailed, strings.TrimSpace(err.Error())
	o.Checklist = run.checks.list()
	o.normalize()
	return o
}
