package contract

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// fakeAdapters are calls by the ID of their adapter.
type fakeAdapters map[string]Adapted

// Adapt implements [Adapters]. A call without a server is one of the command of the contract.
func (f fakeAdapters) Adapt(c Contract, _ *registry.Tool) (*Adapted, []Violation) {
	if c.AdapterID == "" {
		return nil, nil
	}
	a, ok := f[c.AdapterID]
	if !ok {
		return nil, []Violation{{Code: "CK-01", Field: "adapter_id", Rule: "is not an adapter"}}
	}
	a.Contract, a.ID, a.Version, a.Type, a.Digest = c, c.AdapterID, "1.0.0", "cli", "digest of "+c.AdapterID
	a.Contract.Inputs.Operation = "run"
	if a.FallbackIf == nil {
		a.FallbackIf = func(Outcome) bool { return true }
	}
	if a.Read == nil && a.Remote == nil && a.Talk == nil {
		a.Read = func(o Outcome) Answer { return Answer{Value: o.Stdout} }
	}
	return &a, nil
}

// adaptedHarness executes contracts through adapters, with a fake box.
func adaptedHarness(t *testing.T, adapters fakeAdapters, program func(req sandbox.Request, stdin string) result.Result) (*Harness, *fakeBox) {
	t.Helper()
	h, box := newHarness(t, program)
	h.Rules.Adapters = adapters
	h.Policy = policy.Policy{AllowEgress: policy.API}
	h.Jitter = func(wait time.Duration) time.Duration { return wait }
	return h, box
}

// through is a contract for an adapter.
func through(id string) Contract {
	c := cat()
	c.AdapterID = id
	return c
}

// carriedOut runs a contract, and checks the form of its outcome.
func carriedOut(t *testing.T, h *Harness, job Job) Outcome {
	t.Helper()
	o, err := h.Run(t.Context(), job)
	require.NoError(t, err)
	requireWire(t, o)
	return o
}

// outcomeSchema is read once.
var outcomeSchema struct {
	once sync.Once
	*jsonschema.Schema
}

func requireWire(t *testing.T, o Outcome) {
	t.Helper()
	text, err := o.Encode()
	require.NoError(t, err)
	outcomeSchema.once.Do(func() { outcomeSchema.Schema = schematest.Load(t, OutcomeSchemaJSON) })
	schematest.Valid(t, outcomeSchema.Schema, text)
}

// codes are programs that end with these exit codes, one after the other.
func codes(all ...int) func(sandbox.Request, string) result.Result {
	n := 0
	return func(sandbox.Request, string) result.Result {
		code := all[min(n, len(all)-1)]
		n++
		return result.Result{Status: result.StatusExited, ExitCode: code, Stdout: "out", DurationSeconds: 1}
	}
}

// state is the state of a point of the checklist.
func state(o Outcome, point string) string {
	for _, p := range o.Checklist {
		if p.Point == point {
			return p.State
		}
	}
	return ""
}

func TestAttempts(t *testing.T) {
	for name, test := range map[string]struct {
		codes []int
		retry Retry
		want  []int
		waits []int64 // milliseconds
	}{
		"a success":                {[]int{0}, Retry{MaxAttempts: 3, Codes: []int{0, 1}}, []int{0}, []int64{0}},
		"no retry is said":         {[]int{1}, Retry{}, []int{1}, []int64{0}},
		"a code that is listed":    {[]int{4, 4, 0}, Retry{MaxAttempts: 5, Backoff: time.Second, Codes: []int{4}}, []int{4, 4, 0}, []int64{0, 1000, 2000}},
		"a code that is not":       {[]int{4, 5, 0}, Retry{MaxAttempts: 5, Backoff: time.Millisecond, Codes: []int{4}}, []int{4, 5}, []int64{0, 1}},
		"no pause after the last":  {[]int{4}, Retry{MaxAttempts: 2, Backoff: 50 * time.Millisecond, Codes: []int{4}}, []int{4, 4}, []int64{0, 50}},
		"one attempt":              {[]int{4, 0}, Retry{MaxAttempts: 1, Codes: []int{4}}, []int{4}, []int64{0}},
		"a pause is a minute most": {[]int{4}, Retry{MaxAttempts: 4, Backoff: 25 * time.Second, Codes: []int{4}}, []int{4, 4, 4, 4}, []int64{0, 25000, 50000, 60000}},
		"ten attempts":             {[]int{4}, Retry{MaxAttempts: 10, Codes: []int{4}}, []int{4, 4, 4, 4, 4, 4, 4, 4, 4, 4}, make([]int64, 10)},
	} {
		t.Run(name, func(t *testing.T) {
			h, box := adaptedHarness(t, fakeAdapters{"A": {Retry: test.retry}}, codes(test.codes...))
			var o Outcome
			var used trial.Usage
			var took, paused time.Duration
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				job := of(through("A"))
				job.used = &used
				o = carriedOut(t, h, job)
				took = time.Since(began)
			})
			require.Len(t, box.ran, len(test.want))
			require.Len(t, o.Call.Attempts, len(test.want))
			for i, a := range o.Call.Attempts {
				require.Equal(t, "A", a.AdapterID)
				require.Equal(t, test.want[i], *a.Code)
				require.Equal(t, test.waits[i], a.WaitMS)
				require.Equal(t, box.ran[i].Name, o.ExecutionID, "all attempts are of one execution")
				require.NotEmpty(t, a.RunID)
				require.Equal(t, test.want[i] == 0, a.Error == "", a.Error)
				paused += time.Duration(a.WaitMS) * time.Millisecond
			}
			require.Equal(t, paused, took)
			last := test.want[len(test.want)-1]
			require.Equal(t, last, *o.Call.Code)
			require.Equal(t, last == 0, o.Success)
			require.Equal(t, len(test.want), used.Runs)
			require.Equal(t, o.Call.Attempts[len(test.want)-1].RunID, o.Evidence.RunID)
			if o.Success {
				require.Equal(t, "out", o.Call.Value)
			} else {
				require.Nil(t, o.Call.Value)
			}
		})
	}
}

// The time limit has the code 143.
func TestAttemptsAfterTheTimeLimit(t *testing.T) {
	n := 0
	h, _ := adaptedHarness(t, fakeAdapters{"A": {Retry: Retry{MaxAttempts: 2, Codes: []int{143}}}}, func(sandbox.Request, string) result.Result {
		if n++; n == 1 {
			return result.Result{Status: result.StatusTimedOut, TimedOut: true, ExitCode: -1}
		}
		return result.Result{Status: result.StatusExited}
	})
	o := carriedOut(t, h, of(through("A")))
	require.True(t, o.Success, o.Error)
	require.Len(t, o.Call.Attempts, 2)
	require.Equal(t, 143, *o.Call.Attempts[0].Code)
	require.Equal(t, "timed_out", o.Call.Attempts[0].Status)
}

// Without a jitter of its own, a pause is between half and the whole.
func TestHalfToWhole(t *testing.T) {
	require.Zero(t, halfToWhole(0))
	require.Zero(t, halfToWhole(-time.Second))
	require.Equal(t, time.Duration(1), halfToWhole(1)+1-halfToWhole(1))
	for range 1000 {
		wait := halfToWhole(time.Second)
		require.GreaterOrEqual(t, wait, time.Second/2)
		require.LessOrEqual(t, wait, time.Second)
	}
}

// A refused contract is never tried again, and has no attempts.
func TestRefusedIsNotTriedAgain(t *testing.T) {
	retry := Retry{MaxAttempts: 5, Codes: []int{0, 1}}
	h, box := adaptedHarness(t, fakeAdapters{"A": {Retry: retry, Fallback: "B"}, "B": {}}, codes(0))
	for name, change := range map[string]func(*Contract){
		"by its text":  func(c *Contract) { c.Inputs.Command = "rm" },
		"by its files": func(c *Contract) { c.Inputs.InputFiles = []string{"missing"} },
		"the adapter":  func(c *Contract) { c.AdapterID = "C" },
	} {
		c := through("A")
		change(&c)
		o := carriedOut(t, h, of(c))
		require.Equal(t, StatusRefused, o.Status, name)
		require.False(t, o.Started, name)
		require.Nil(t, o.ExitCode, name)
		if o.Call != nil {
			require.Empty(t, o.Call.Attempts, name)
		}
	}
	require.Empty(t, box.ran)

	box.planErr = &policy.FieldError{Field: "cpus", Value: "4", Rule: "the engine's machine has 2"}
	o := carriedOut(t, h, of(through("A")))
	require.Equal(t, StatusRefused, o.Status)
	require.Equal(t, "sandbox.cpu_cores", o.Violations[0].Field)
	require.Equal(t, CheckFailed, state(o, "limits_set"))
}

// An approval is for one attempt.
func TestApprovedIsNotTriedAgain(t *testing.T) {
	adapters := fakeAdapters{"A": {Retry: Retry{MaxAttempts: 3, Codes: []int{1}}, Fallback: "B"}, "B": {}}
	h, box := adaptedHarness(t, adapters, codes(1))
	c := through("A")
	c.ToolID, c.Inputs.Command = "TL-010", "python3"
	c.Sandbox.Filesystem.Level = "elevated"
	e, violations, _ := h.Rules.Validate(c)
	require.Empty(t, violations)
	approval := NewApproval(e, h.Root, "", Approver{Name: "Ada", Reason: "a test"}, time.Now(), time.Hour)
	require.NoError(t, h.Approvals.Grant(approval))
	o := carriedOut(t, h, Job{Contract: &c, Approval: &approval})
	require.Len(t, box.ran, 1)
	require.Len(t, o.Call.Attempts, 1)
	require.Equal(t, "exited", o.Status)
	require.Equal(t, "Ada", o.Approval.ApprovedBy)

	// The next adapter version needs another one.
	o = carriedOut(t, h, Job{Contract: &c, Approval: &approval})
	require.Equal(t, StatusRefused, o.Status)
	require.Empty(t, o.Call.Attempts)
}

func TestFallback(t *testing.T) {
	retry := Retry{MaxAttempts: 2, Codes: []int{4}}
	h, box := adaptedHarness(t, fakeAdapters{
		"A": {Retry: retry, Fallback: "B"}, "B": {Fallback: "C"}, "C": {Fallback: "D"}, "D": {},
	}, codes(4, 4, 5, 0))
	var used trial.Usage
	job := of(through("A"))
	job.used = &used
	o := carriedOut(t, h, job)
	require.True(t, o.Success, o.Error)
	require.Equal(t, "C", o.AdapterID)
	require.Equal(t, "C", o.Call.AdapterID)
	var order []string
	var ids []string
	for _, a := range o.Call.Attempts {
		order = append(order, fmt.Sprintf("%s %d", a.AdapterID, *a.Code))
		ids = append(ids, a.RunID)
	}
	require.Equal(t, []string{"A 4", "A 4", "B 5", "C 0"}, order)
	require.Equal(t, 4, used.Runs, "the usage is that of all adapters")
	require.InDelta(t, 4, used.WallSeconds, 0)
	require.Len(t, box.ran, 4)
	for _, req := range box.ran {
		require.Equal(t, o.ExecutionID, req.Name)
	}
	res, err := o.Trial(trial.Job{ID: "j"})
	require.NoError(t, err)
	for i, run := range res.Runs {
		require.Equal(t, ids[i], run.ID)
	}
	require.Len(t, res.Runs, 4)
}

// A fallback is used when its condition holds, and not otherwise.
func TestFallbackCondition(t *testing.T) {
	never := func(Outcome) bool { return false }
	h, box := adaptedHarness(t, fakeAdapters{"A": {Fallback: "B", FallbackIf: never}, "B": {}}, codes(1, 0))
	o := carriedOut(t, h, of(through("A")))
	require.False(t, o.Success)
	require.Equal(t, "A", o.AdapterID)
	require.Len(t, box.ran, 1)
}

// A fallback that cannot carry out the contract leaves the outcome of the call that was made.
func TestFallbackIsRefused(t *testing.T) {
	denied := func(context.Context, Effective, policy.Egress) Answer {
		return Answer{Refused: []Violation{{Code: "CK-01", Field: "adapter_id", Rule: "has no secret"}}}
	}
	for name, test := range map[string]struct {
		fallback Adapted
		id       string
	}{
		"there is none":  {Adapted{}, "C"},
		"it is offline":  {Adapted{Remote: denied}, "B"},
		"it has no file": {Adapted{}, "B"},
	} {
		h, box := adaptedHarness(t, fakeAdapters{"A": {Fallback: test.id}, "B": test.fallback}, codes(1))
		if name == "it has no file" {
			box.program = func(sandbox.Request, string) result.Result {
				box.planErr = &policy.FieldError{Field: "cpus", Value: "4", Rule: "the machine has 2"}
				return result.Result{Status: result.StatusExited, ExitCode: 1}
			}
		}
		o := carriedOut(t, h, of(through("A")))
		require.Equal(t, "exited", o.Status, name)
		require.Equal(t, "A", o.AdapterID, name)
		require.Equal(t, 1, *o.ExitCode, name)
		require.Len(t, o.Call.Attempts, 1, name)
		require.Len(t, o.Warnings, 1, name)
		require.Contains(t, o.Warnings[0], "The fallback adapter "+test.id+" did not make the call: ", name)
		require.Empty(t, o.Violations, name)
	}
}

// The attempts that were made are in the outcome of one that does not begin.
func TestAttemptThatDoesNotBegin(t *testing.T) {
	h, box := adaptedHarness(t, fakeAdapters{"A": {Retry: Retry{MaxAttempts: 3, Codes: []int{4}}}}, nil)
	box.program = func(sandbox.Request, string) result.Result {
		box.planErr = errFake
		return result.Result{Status: result.StatusExited, ExitCode: 4}
	}
	var used trial.Usage
	job := of(through("A"))
	job.used = &used
	o, err := h.Run(t.Context(), job)
	require.ErrorIs(t, err, errFake)
	requireWire(t, o)
	require.Equal(t, StatusFailed, o.Status)
	require.Len(t, o.Call.Attempts, 1)
	require.Equal(t, 4, *o.Call.Attempts[0].Code)
	require.Equal(t, 1, used.Runs)
}

// A call that is canceled is neither tried again nor given to the fallback.
func TestAttemptsAreCanceled(t *testing.T) {
	stop := errors.New("the user is gone")
	adapters := fakeAdapters{"A": {Retry: Retry{MaxAttempts: 3, Backoff: time.Hour, Codes: []int{4}}, Fallback: "B"}, "B": {}}
	h, box := adaptedHarness(t, adapters, codes(4))
	ctx, cancel := context.WithCancelCause(t.Context())
	h.Jitter = func(time.Duration) time.Duration {
		cancel(stop)
		return time.Hour
	}
	o, err := h.Run(ctx, of(through("A")))
	require.NoError(t, err)
	requireWire(t, o)
	require.Len(t, box.ran, 1)
	require.Len(t, o.Call.Attempts, 1)
	require.Equal(t, "A", o.AdapterID)

	// Before the first attempt, there is none.
	o, err = h.Run(ctx, of(through("A")))
	require.ErrorIs(t, err, stop)
	requireWire(t, o)
	require.Equal(t, "canceled", o.Status)
	require.Empty(t, o.Call.Attempts)
	require.Len(t, box.ran, 1)
}

// A transform that fails fails the call, and the checklist says so.
func TestTransformFails(t *testing.T) {
	transform := func(value any) (any, error) { return nil, fmt.Errorf("output transform 1 (parse): %v", value) }
	h, _ := adaptedHarness(t, fakeAdapters{"A": {Transform: transform}}, codes(0))
	o := carriedOut(t, h, of(through("A")))
	require.False(t, o.Success)
	require.Equal(t, "output transform 1 (parse): out", o.Error)
	require.Nil(t, o.Call.Value)
	require.Equal(t, 0, *o.Call.Code)
	require.Equal(t, CheckFailed, state(o, "outputs_validated"))
	require.Equal(t, trial.Failed, o.Verdict)
}

// eachBox is a fake box for calls at the same time.
type eachBox struct{ *fakeBox }

func (b eachBox) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	own := *b.fakeBox
	return own.Run(ctx, req, opts...)
}

// A thousand calls of one harness do not disturb each other.
func TestManyCalls(t *testing.T) {
	var ran atomic.Int64
	program := func(req sandbox.Request, _ string) result.Result {
		if ran.Add(1)%3 == 0 {
			return result.Result{Status: result.StatusExited, ExitCode: 4}
		}
		return result.Result{Status: result.StatusExited, Stdout: req.Command[1]}
	}
	h, box := adaptedHarness(t, fakeAdapters{
		"A": {Retry: Retry{MaxAttempts: 10, Codes: []int{4}}, Fallback: "B"}, "B": {Cacheable: true},
	}, program)
	h, err := New(eachBox{box}, h.Options)
	require.NoError(t, err)
	const calls = 1000
	var waits sync.WaitGroup
	var attempts atomic.Int64
	for i := range calls {
		waits.Go(func() {
			c := through([]string{"A", "B"}[i%2])
			if i%2 == 0 {
				c.Inputs.Arguments = []string{fmt.Sprint(i)}
			}
			o, err := h.Run(context.Background(), of(c))
			if !assert.NoError(t, err) {
				return
			}
			if o.Success {
				assert.Equal(t, c.Inputs.Arguments[0], o.Call.Value)
			}
			if !o.Call.Cached {
				attempts.Add(int64(len(o.Call.Attempts)))
			}
		})
	}
	waits.Wait()
	require.Equal(t, ran.Load(), attempts.Load(), "every run is an attempt of one outcome")
}
