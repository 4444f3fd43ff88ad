package contract

import (
	"context"
	"encoding/base64"
	"io"
	"slices"
	"strconv"

	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// Adapters say how contracts with an adapter are carried out (AR-01). Package
// harness/contract/adapter has them.
type Adapters interface {
	// Adapt returns the call of a contract, nil if no adapter carries it out. tool is the tool of
	// the contract; nil for one that is not registered. The violations say why the contract is
	// refused.
	Adapt(c Contract, tool *registry.Tool) (*Adapted, []Violation)
}

// Adapted is a contract as its adapter carries it out. Functions that are nil have nothing to do.
type Adapted struct {
	// Contract has the command line of the adapter, and its limits.
	Contract Contract
	// ID, Version and Type are those of the adapter.
	ID, Version, Type string
	// Target is the command or the request, for people.
	Target string
	// Matches says for the checklist how adapter and tool match (CK-01).
	Matches string

	// Warnings are about the contract.
	Warnings []string

	// Remote makes the call from this process; no program runs. Egress has the hosts that it may
	// reach.
	Remote func(ctx context.Context, e Effective, egress policy.Egress) Answer
	// Files are mounted read-only at FilesDir.
	Files    map[string]string
	FilesDir string
	// Talk speaks with the program while it runs. The program is asked to end when Talk returns.
	Talk func(ctx context.Context, e Effective, stdin io.Writer, stdout io.Reader) Answer
	// Read is the answer in the output of a program that has ended.
	Read func(o Outcome) Answer
	// Transform turns the value of a successful call into that of the outcome (AR-06).
	Transform func(value any) (any, error)

	// Retry says when the call is made again (AR-07). Its codes are those of [Answer.Code].
	Retry Retry
	// Fallback is the adapter that is used after a failure for which FallbackIf holds; empty for
	// none.
	Fallback   string
	FallbackIf func(o Outcome) bool
	// Cacheable says that the same call has the same result during a session (DT-02).
	Cacheable bool
	// Digest identifies the document of the adapter.
	Digest string
}

// Answer is what the tool behind an adapter gave.
type Answer struct {
	// Value is plain data, as encoding/json has it.
	Value any
	// Code is the HTTP status or the error code of JSON-RPC; nil for the exit code of a program.
	Code *int
	// Status is one of the statuses of remote calls; empty for a program.
	Status string
	// Unsent says that the call did not reach the tool: it may be made again.
	Unsent bool
	// Err says why there is no value, or why it does not count.
	Err error
	// Refused are rules that the call would have broken: it was not made.
	Refused []Violation
	// Text is the beginning of the answer as text, TextBytes the length of all of it.
	Text      string
	TextBytes int64
	// Artifacts are images and the like.
	Artifacts []Artifact
}

// Call is the call of an adapter, as an outcome has it.
type Call struct {
	AdapterID string `json:"adapter_id"`
	Version   string `json:"version"`
	Type      string `json:"type"`
	Operation string `json:"operation"`
	// Target is the command or the request.
	Target string `json:"target"`
	// Code decides on retries (resolution 18): the exit code, the HTTP status or the error code of
	// JSON-RPC. It is nil if there is none.
	Code *int `json:"code"`
	// Value is the output after the transforms; null without success.
	Value any `json:"value"`
	// Cached says that the outcome is that of an earlier call of the session.
	Cached bool `json:"cached"`
	// Unsent says that the call did not reach its tool: it can be made again, or another way.
	Unsent bool `json:"unsent"`
	// Attempts are all attempts, also those of other adapters, in their order.
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one attempt of a call.
type Attempt struct {
	AdapterID string `json:"adapter_id"`
	// Status is that of the outcome of the attempt, Error why it was not a success.
	Status string `json:"status"`
	Code   *int   `json:"code"`
	Error  string `json:"error"`
	// RunID is the run of the sandbox; empty for a remote call.
	RunID      string `json:"run_id"`
	DurationMS int64  `json:"duration_ms"`
	// WaitMS is the pause before the attempt, in milliseconds.
	WaitMS int64 `json:"wait_ms"`
}

// adapt returns the call of a contract with an adapter.
func (r Rules) adapt(c Contract) (*Adapted, []Violation) {
	if r.Adapters == nil {
		return nil, nil
	}
	if tool, ok := r.Registry.Tool(c.ToolID); ok {
		return r.Adapters.Adapt(c, &tool)
	}
	return r.Adapters.Adapt(c, nil)
}

// newCall begins the account of a call.
func (a *Adapted) newCall() *Call {
	return &Call{AdapterID: a.ID, Version: a.Version, Type: a.Type, Operation: a.Contract.Inputs.Operation, Target: a.Target, Attempts: []Attempt{}}
}

// answered completes an outcome with the answer of its tool.
func (run *execution) answered(answer Answer) {
	o, a := &run.outcome, run.Effective.Adapted
	call := o.Call
	o.Artifacts = append(o.Artifacts, answer.Artifacts...)
	if a.Talk != nil && !o.Started {
		answer = Answer{} // there was nobody to talk with: the outcome says why
	}
	if run.lingered { // we ended it, after the talk; nobody canceled it
		o.Status, o.Fault, o.Error, run.conclusive = StatusAnswered, result.FaultProgram.String(), "", true
		o.ExitCode, o.Exit, o.Signal = nil, nil, 0 // those of our signal
		if answer.Err == nil {
			o.Fault = result.FaultNone.String()
		}
	}
	call.Code, call.Unsent = answer.Code, answer.Unsent && !o.TimedOut // the time limit has a code
	if call.Code == nil && !a.isRemote() {
		call.Code = o.ExitCode
	}
	if a.Talk != nil && answer.Err == nil && o.Started && !o.TimedOut {
		run.talked()
	}
	err := answer.Err
	if err == nil && o.Success {
		err = call.take(answer.Value, a.Transform)
	}
	if err == nil {
		run.checkCall()
		return
	}
	defer run.checkCall()
	o.Success = false
	switch {
	case o.Error == "":
		o.Error = err.Error()
	case !o.TimedOut && o.Status != result.StatusCanceled.String():
		o.Error = err.Error() + "; " + o.Error // the program's own words come first
	}
}

// checkCall sets the points of a run again that depend on the answer.
func (run *execution) checkCall() {
	o := &run.outcome
	if !o.Started || run.Effective.Adapted.isRemote() {
		return
	}
	if o.Success && run.checks["outputs_validated"].State == CheckFailed { // the exit code did not count
		run.check("outputs_validated", true, "the program answered, as the contract wants")
	} else if !o.Success {
		run.check("outputs_validated", false, "%s", text.Short(o.Error, mostShown))
		run.check("errors_logged", true, "%s", text.Short(o.Error, mostShown))
	}
	o.Checklist = run.checklist()
}

// talked judges a program that has answered: how it ended afterwards does not matter.
func (run *execution) talked() {
	o := &run.outcome
	o.Differences = slices.DeleteFunc(o.Differences, func(d Difference) bool { return d.What == "exit_code" })
	run.conclusive, o.Error = true, ""
	failed := o.failures()
	if o.Success = len(failed) == 0; !o.Success {
		o.Error = failed[0].String()
	}
}

func (a *Adapted) isRemote() bool { return a != nil && a.Remote != nil }

// take sets the value of the call.
func (c *Call) take(value any, transform func(any) (any, error)) (err error) {
	if transform != nil {
		if value, err = transform(value); err != nil {
			return err
		}
	}
	c.Value = value
	return nil
}

// Base64Artifact is an artifact whose data is base64. where is its place in the answer.
func Base64Artifact(kind string, data []byte, where string) Artifact {
	return Artifact{MIMEType: kind, Data: base64.StdEncoding.EncodeToString(data), Metadata: map[string]string{
		"encoding": "base64", "source": where, "size_bytes": strconv.Itoa(len(data)), "sha256": sha256Of(string(data)),
	}}
}
