package invoke

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/policy"
)

// Option configures a [Runner]; a value that makes no sense is refused.
type Option func(*Runner) error

// WithTimeout sets the time limit of each call; it must be positive (MI-01).
func WithTimeout(limit time.Duration) Option {
	return func(r *Runner) error {
		if limit <= 0 {
			return &policy.FieldError{Field: "timeout", Value: limit.String(), Rule: "must be positive"}
		}
		r.timeout = limit
		return nil
	}
}

// WithEnv adds variables to the fixed environment of the engine. Nothing of the
// caller's own environment is passed on.
func WithEnv(env map[string]string) Option {
	return func(r *Runner) error {
		r.env = maps.Clone(env)
		return errors.Join(policy.CheckEnv(env)...)
	}
}

// WithRoot names a folder that the tool starts in, and finds its own files in. In the
// sandbox it is read-only.
func WithRoot(dir string) Option {
	return func(r *Runner) error {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = errors.New("is not a directory")
		}
		if err != nil {
			return &policy.FieldError{Field: "root", Value: fmt.Sprintf("%.200q", dir), Rule: fsx.Cause(err).Error()}
		}
		r.root, err = filepath.Abs(dir)
		return err
	}
}

// WithProfile declares further artifacts.
func WithProfile(p Profile) Option {
	return func(r *Runner) error {
		r.profile = p
		return p.check(nil, "profile")
	}
}

// WithSandbox runs the tool in fresh containers.
func WithSandbox(s Sandbox) Option { return func(r *Runner) error { return r.choose(s) } }

// WithHost runs the tool on this machine, with nothing between the two but a process
// group: for tools that one trusts, where there is no engine.
func WithHost(h Host) Option { return func(r *Runner) error { return r.choose(h) } }

func (r *Runner) choose(e engine) error {
	if r.engine != nil {
		return errors.New("invoke: two engines are named")
	}
	r.engine = e
	return e.check()
}
