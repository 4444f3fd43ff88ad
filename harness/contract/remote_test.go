package contract

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/policy"
)

// calling is a contract for an adapter that calls a server.
func calling() Contract {
	return Contract{ToolID: "TL-010", AdapterID: "A", Sandbox: Sandbox{TimeoutMS: new(int64(2000)), Network: Network{Level: "api", Allow: []string{"b.example", "a.example"}}}}
}

func TestRemote(t *testing.T) {
	broken := errors.New("it broke")
	for name, test := range map[string]struct {
		answer  Answer
		waits   bool // until the time limit
		status  string
		verdict trial.Verdict
		code    any
		err     string
	}{
		"answered":       {answer: Answer{Status: StatusAnswered, Code: new(200), Value: "v", Text: "body", TextBytes: 4}, status: "answered", verdict: trial.Passed, code: 200},
		"without a code": {answer: Answer{Status: StatusAnswered, Value: "v"}, status: "answered", verdict: trial.Passed},
		"an error":       {answer: Answer{Status: StatusAnswered, Code: new(404), Err: broken, Text: "none"}, status: "answered", verdict: trial.Failed, code: 404, err: "it broke"},
		"unreachable":    {answer: Answer{Status: StatusUnreachable, Err: broken}, status: "unreachable", verdict: trial.Inconclusive, err: "it broke"},
		"blocked":        {answer: Answer{Status: StatusBlocked, Err: broken}, status: "blocked", verdict: trial.Failed, err: "it broke"},
		"timed out":      {answer: Answer{Status: StatusUnreachable, Err: broken, Unsent: true}, waits: true, status: "timed_out", verdict: trial.Failed, err: "Execution timed out after 2s"},
		"in time":        {answer: Answer{Status: StatusAnswered, Value: "v"}, waits: true, status: "answered", verdict: trial.Passed},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			h, box := adaptedHarness(t, fakeAdapters{"A": {Retry: Retry{MaxAttempts: 3}, Remote: func(ctx context.Context, e Effective, egress policy.Egress) Answer {
				calls++
				assert.Equal(t, policy.API, egress.Level)
				assert.Equal(t, []string{"b.example", "a.example"}, egress.Allow)
				assert.Equal(t, 2*time.Second, e.Timeout)
				if test.waits {
					<-ctx.Done()
				}
				return test.answer
			}}}, nil)
			var o Outcome
			synctest.Test(t, func(t *testing.T) { o = carriedOut(t, h, of(calling())) })
			require.Equal(t, 1, calls)
			require.Empty(t, box.ran)
			require.Equal(t, test.status, o.Status)
			require.Equal(t, test.verdict, o.Verdict)
			require.Equal(t, test.verdict == trial.Passed, o.Success)
			require.Equal(t, test.err, o.Error)
			require.Equal(t, test.status == "timed_out", o.TimedOut)
			require.Nil(t, o.ExitCode)
			require.Nil(t, o.Executed)
			require.Empty(t, o.Evidence.RunID)
			if test.code == nil {
				require.Nil(t, o.Call.Code)
			} else {
				require.Equal(t, test.code, *o.Call.Code)
			}
			require.Equal(t, test.answer.Text, o.Stdout)
			if o.Success {
				require.Equal(t, "v", o.Call.Value)
			} else {
				require.Nil(t, o.Call.Value)
			}
			require.Equal(t, []Attempt{{AdapterID: "A", Status: test.status, Code: o.Call.Code, Error: test.err, DurationMS: o.DurationMS}}, o.Call.Attempts)
			require.Equal(t, map[bool]string{true: CheckDone, false: CheckFailed}[o.Success], state(o, "outputs_validated"))
			require.Equal(t, CheckDone, state(o, "timeout_enforced"))
			require.Equal(t, CheckNotReached, state(o, "resources_monitored"))
		})
	}
}

// The user, not the time limit, ends a call.
func TestRemoteIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	h, _ := adaptedHarness(t, fakeAdapters{"A": {Retry: Retry{MaxAttempts: 3, Codes: []int{200}}, Fallback: "A", Remote: func(ctx context.Context, _ Effective, _ policy.Egress) Answer {
		cancel(errFake)
		<-ctx.Done()
		return Answer{Status: StatusUnreachable, Code: new(200), Err: ctx.Err()}
	}}}, nil)
	o, err := h.Run(ctx, of(calling()))
	require.NoError(t, err)
	requireWire(t, o)
	require.Equal(t, "canceled", o.Status)
	require.Equal(t, errFake.Error(), o.Error)
	require.Equal(t, trial.Inconclusive, o.Verdict)
	require.Nil(t, o.Call.Value)
	require.Len(t, o.Call.Attempts, 1)
}

// A server that was not reached is called again whatever the codes are.
func TestRemoteAgain(t *testing.T) {
	answers := []Answer{
		{Status: StatusUnreachable, Err: errFake, Unsent: true}, {Status: StatusAnswered, Code: new(429), Err: errFake}, {Status: StatusAnswered, Code: new(200), Value: "v"},
	}
	h, _ := adaptedHarness(t, fakeAdapters{"A": {Retry: Retry{MaxAttempts: 3, Backoff: time.Second, Codes: []int{429}}, Remote: func(context.Context, Effective, policy.Egress) Answer {
		next := answers[0]
		answers = answers[1:]
		return next
	}}}, nil)
	var o Outcome
	synctest.Test(t, func(t *testing.T) { o = carriedOut(t, h, of(calling())) })
	require.True(t, o.Success, o.Error)
	require.Equal(t, []Attempt{
		{AdapterID: "A", Status: "unreachable", Error: errFake.Error()},
		{AdapterID: "A", Status: "answered", Code: new(429), Error: errFake.Error(), WaitMS: 1000},
		{AdapterID: "A", Status: "answered", Code: new(200), WaitMS: 2000},
	}, o.Call.Attempts)
}

// The expectation of the contract about stdout is one about the body.
func TestRemoteBody(t *testing.T) {
	h, _ := adaptedHarness(t, fakeAdapters{"A": {Remote: func(context.Context, Effective, policy.Egress) Answer {
		return Answer{Status: StatusAnswered, Value: "v", Text: "body", TextBytes: 9}
	}}}, nil)
	c := calling()
	c.Outputs.Stdout.Expected = new("other")
	o := carriedOut(t, h, of(c))
	require.False(t, o.Success)
	require.Len(t, o.Differences, 1)
	require.Contains(t, o.Error, "stdout")
	require.True(t, o.Truncated)
	require.EqualValues(t, 9, o.StdoutBytes)
	require.Equal(t, CheckFailed, state(o, "streams_captured"))
	require.Equal(t, trial.Failed, o.Verdict)
}

func TestRemoteRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Contract)
		policy policy.Policy
		want   []string
	}{
		"offline":     {func(c *Contract) { c.Sandbox.Network = Network{} }, policy.Policy{AllowEgress: policy.API}, []string{"CX-04 sandbox.network.level"}},
		"the machine": {func(*Contract) {}, policy.Policy{}, []string{"CX-04 sandbox.network.level"}},
		"a private host": {
			func(c *Contract) { c.Sandbox.Network.Allow = []string{"a.example", "127.0.0.1"} }, policy.Policy{AllowEgress: policy.API}, []string{"CX-04 sandbox.network.allow[1]"},
		},
		"a program": {func(c *Contract) {
			c.Outputs = Outputs{OutputFiles: []string{"/work/final/a"}, Artifacts: []ArtifactSpec{{Path: "/work/final/a"}}, ExitCode: new(3), Stderr: Stream{Expected: new("x")}}
			c.Determinism.Clock = "2026-01-01T12:00:00Z"
		}, policy.Policy{AllowEgress: policy.API}, []string{
			"CX-05 outputs.output_files", "CX-05 outputs.artifacts", "CX-05 outputs.stderr", "CX-05 outputs.exit_code", "DT-01 determinism.clock",
		}},
	} {
		h, _ := adaptedHarness(t, fakeAdapters{"A": {Retry: Retry{MaxAttempts: 3}, Remote: func(context.Context, Effective, policy.Egress) Answer {
			t.Error("the call was made")
			return Answer{}
		}}}, nil)
		h.Policy = test.policy
		c := calling()
		test.change(&c)
		o := carriedOut(t, h, of(c))
		var fields []string
		for _, v := range o.Violations {
			fields = append(fields, v.Code+" "+v.Field)
		}
		require.Equal(t, test.want, fields, name)
		require.Equal(t, StatusRefused, o.Status, name)
		require.False(t, o.Started, name)
		require.Empty(t, o.Call.Attempts, name)
		planned, err := h.Plan(t.Context(), of(c))
		require.NoError(t, err)
		require.Equal(t, StatusRefused, planned.Status, name)
	}
}

// A rule that shows only when the call is made refuses it, too.
func TestRemoteRefusesTheCall(t *testing.T) {
	h, _ := adaptedHarness(t, fakeAdapters{"A": {Retry: Retry{MaxAttempts: 3}, Remote: func(context.Context, Effective, policy.Egress) Answer {
		return Answer{Refused: []Violation{{Code: "CK-01", Field: "adapter_id", Rule: "has no secret"}}}
	}}}, nil)
	o := carriedOut(t, h, of(calling()))
	require.Equal(t, StatusRefused, o.Status)
	require.Equal(t, trial.Refused, o.Verdict)
	require.False(t, o.Started)
	require.Equal(t, CheckFailed, state(o, "adapter_matches_tool"))
	require.Empty(t, o.Call.Attempts)

	planned, err := h.Plan(t.Context(), of(calling()))
	require.NoError(t, err)
	require.Equal(t, StatusPlanned, planned.Status)
	requireWire(t, planned)
}

func TestRemoteApproval(t *testing.T) {
	calls := 0
	h, _ := adaptedHarness(t, fakeAdapters{"A": {Cacheable: true, Remote: func(context.Context, Effective, policy.Egress) Answer {
		calls++
		return Answer{Status: StatusAnswered, Value: "v", Artifacts: []Artifact{Base64Artifact("image/png", []byte("png"), "content[0]")}}
	}}}, nil)
	h.Policy.AllowEgress = policy.Open
	c := calling()
	c.Sandbox.Network = Network{Level: "open"}
	o := carriedOut(t, h, of(c))
	require.Equal(t, StatusRefused, o.Status)
	e, _, _ := h.Rules.Validate(c)
	approval := NewApproval(e, h.Root, "", Approver{Name: "Ada", Reason: "a test"}, time.Now(), time.Hour)
	require.NoError(t, h.Approvals.Grant(approval))
	o = carriedOut(t, h, Job{Contract: &c, Approval: &approval})
	require.True(t, o.Success, o.Error)
	require.Equal(t, "Ada", o.Approval.ApprovedBy)
	require.Equal(t, "cG5n", o.Artifacts[0].Data)
	require.Equal(t, "3", o.Artifacts[0].Metadata["size_bytes"])

	// It was for one call: neither it nor its result is there again.
	o = carriedOut(t, h, Job{Contract: &c, Approval: &approval})
	require.Equal(t, StatusRefused, o.Status)
	o = carriedOut(t, h, of(c))
	require.Equal(t, StatusRefused, o.Status)
	require.Equal(t, 1, calls)
}
