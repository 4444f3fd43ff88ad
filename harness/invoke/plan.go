package invoke

import (
	"context"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// Plan is what a call would run.
type Plan struct {
	Engine  string   `json:"engine"`
	Command []string `json:"command"`
	WorkDir string   `json:"work_dir"`
	// Config and OutputDir are the host's paths.
	Config         string  `json:"config"`
	OutputDir      string  `json:"output_dir"`
	TimeoutSeconds float64 `json:"timeout_seconds"`
	// Unenforced are limits that do not hold.
	Unenforced []string `json:"unenforced"`
	// Spec is the plan of the sandbox; nil on the host.
	Spec *spec.Spec `json:"spec,omitempty"`
}

// Plan says what [Runner.Run] would do, and refuses what it would refuse, but for an
// output directory that another call uses. A program of the host that cannot be started
// is an [*InvocationError]. It changes nothing.
func (r *Runner) Plan(ctx context.Context, inv Invocation) (Plan, error) {
	c, p, err := r.prepare(inv)
	if err != nil {
		return Plan{}, err
	}
	root, err := openOutput(c.OutputDir)
	if err != nil {
		return Plan{}, err
	}
	defer root.Close()
	if _, err := r.lookAt(root, c.OutputDir); err != nil {
		return Plan{}, err
	}
	return r.engine.plan(ctx, c, p)
}

// prepare does all that can be done before the output directory is looked at.
func (r *Runner) prepare(inv Invocation) (call, Plan, error) {
	inv, err := inv.absolute()
	if err != nil {
		return call{}, Plan{}, err
	}
	c := call{inv, r.words, r.timeout, r.env, r.root}
	p, err := r.engine.place(c)
	return c, p, err
}
