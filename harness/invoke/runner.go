package invoke

import (
	"context"
	"errors"
	"time"
)

// DefaultTimeout is the time limit of a call if nobody says otherwise (M3-11).
const DefaultTimeout = 300 * time.Second

// Runner calls one tool. It may be used concurrently, with an output directory for each
// call.
type Runner struct {
	words   []string
	timeout time.Duration
	env     map[string]string
	root    string
	profile Profile
	engine  engine
}

// New makes a runner of a command line such as "python -m tool.cli", see
// [SplitCommand]. Where it runs must be said, with [WithSandbox] or [WithHost].
func New(executable string, opts ...Option) (*Runner, error) {
	words, err := SplitCommand(executable)
	if err != nil {
		return nil, err
	}
	r := &Runner{words: words, timeout: DefaultTimeout}
	for _, opt := range opts {
		if err := opt(r); err != nil {
			return nil, err
		}
	}
	if r.engine == nil {
		return nil, errors.New("invoke: no engine is named")
	}
	return r, nil
}

// engine is where a tool runs.
type engine interface {
	check() error
	// place is what the tool is told and where it starts. It is pure but for looking
	// whether the configuration exists.
	place(c call) (Plan, error)
	// plan completes a plan with what only the engine knows. It starts nothing.
	plan(ctx context.Context, c call, p Plan) (Plan, error)
	run(ctx context.Context, c call, p Plan) (ran, error)
}

// call is one invocation with all that the runner knows.
type call struct {
	Invocation
	words   []string
	timeout time.Duration
	env     map[string]string
	root    string
}
