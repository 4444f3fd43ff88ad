package rung

import "fmt"

// Verdicts of [VerifyDir], in the words of RO-11.
const (
	Pass       = "PASS"
	Blocked    = "BLOCKED"
	Incomplete = "EVIDENCE_INCOMPLETE"
)

// Report is what [VerifyDir] found.
type Report struct {
	Rung       int    `json:"rung"`
	Verdict    string `json:"verdict"`
	StopReason string `json:"stop_reason"`
	// Failing are the checks that failed, in the order of the checks.
	Failing []Check `json:"failing"`
}

// Check is one check that failed. Name is one word that stays the same, Detail a sentence.
type Check struct {
	Name   string `json:"name"`
	Detail string `json:"detail"`
}

func (r *Report) fail(name, format string, args ...any) {
	r.Verdict, r.StopReason = Blocked, Incomplete
	r.Failing = append(r.Failing, Check{Name: name, Detail: fmt.Sprintf(format, args...)})
}
