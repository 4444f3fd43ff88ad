package sandbox

import (
	"context"
	"fmt"
)

// A Step is one of the ten steps of a run, in their order; docs/architecture.md describes them.
type Step int

// The steps. StepImage is a part of the time of StepPlan. Between StepPrepare and StepStart a run
// waits until [Hooks].Admit lets it start.
const (
	StepPlan Step = iota + 1
	StepImage
	StepLease
	StepStage
	StepPrepare
	StepStart
	StepStream
	StepEnd
	StepResult
	StepRemove
)

var stepNames = []string{
	StepPlan: "plan", StepImage: "image", StepLease: "lease", StepStage: "stage", StepPrepare: "prepare",
	StepStart: "start", StepStream: "stream", StepEnd: "end", StepResult: "result", StepRemove: "remove",
}

// String returns the name of the step, in lower case.
func (s Step) String() string {
	if s < StepPlan || int(s) >= len(stepNames) {
		return fmt.Sprintf("step(%d)", int(s))
	}
	return stepNames[s]
}

// A Tracer is called when a step of a run begins. The function that it returns is called when the
// step has ended, with the error that ended the run in it, if one did. Neither may block: the run
// waits for them. Only StepImage is reported by another goroutine than the one that called Run.
//
// A run has the steps that it reaches. One that begins again, because its files have to be copied,
// reports its first steps twice. One that another process began reports what is left of it.
type Tracer func(step Step) (ended func(err error))

type tracerKey struct{}

// WithTracer returns a context whose runs report their steps to a tracer, after those that the
// context has already.
func WithTracer(ctx context.Context, t Tracer) context.Context {
	if before := tracerOf(ctx); before != nil {
		after := t
		t = func(step Step) func(error) {
			first, second := before(step), after(step)
			return func(err error) {
				second(err)
				first(err)
			}
		}
	}
	return context.WithValue(ctx, tracerKey{}, t)
}

func tracerOf(ctx context.Context) Tracer {
	t, _ := ctx.Value(tracerKey{}).(Tracer)
	return t
}

// steps reports the steps of one run: the next one begins where the one before ends. Its methods
// are called by the goroutine of the run.
type steps struct {
	tracer Tracer // nil for none
	now    Step
	ended  func(error)
}

// begin ends the step of now, and begins another. A step that has begun goes on.
func (s *steps) begin(step Step) {
	if s.tracer == nil || s.now == step {
		return
	}
	s.end(nil)
	s.now, s.ended = step, s.tracer(step)
}

// end ends the step of now. Without one it does nothing.
func (s *steps) end(err error) {
	if s.ended != nil {
		s.ended(err)
	}
	s.now, s.ended = 0, nil
}
