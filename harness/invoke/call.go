package invoke

import (
	"context"
	"errors"
)

// A Call is a run of a tool with a verification of its artifacts.
type Call struct {
	RunResult
	// OK means that the call ended well and its artifacts are right.
	OK bool `json:"ok"`
	// Reason and Error say why a call did not end well.
	Reason Reason `json:"reason"`
	Error  string `json:"error"`
	// Verification is null unless the tool exited with 0 and its artifacts were looked at.
	Verification *Report `json:"verification"`
}

// NewCall is a call that [Runner.Run] returned with err, before its artifacts are looked at.
func NewCall(res RunResult, err error) Call {
	c := Call{RunResult: res}
	if err != nil {
		c.Error = err.Error()
		var failed *InvocationError
		if errors.As(err, &failed) {
			c.Reason = failed.Reason
		}
	}
	return c
}

// Check looks at the artifacts of a tool that exited with 0. If it cannot, the call says so
// too, and its result is not lost.
func (c *Call) Check(ctx context.Context, opts VerifyOptions) error {
	report, err := c.RunResult.Verify(ctx, opts)
	if err != nil {
		c.Reason, c.Error = ReasonUnverified, "exited 0, but its artifacts were not verified: "+err.Error()
		return err
	}
	c.Verification, c.OK = &report, report.OK && c.Reason == ""
	return nil
}
