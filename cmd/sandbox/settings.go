package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// settings are the effective values of all keys of configs/sandbox.yaml.
type settings struct {
	Image, Runtime, User, Network, GPUs, Transfer string
	// GPUDriver, GPUShare and GPUWait say how GPUs are got.
	GPUDriver string
	GPUShare  bool
	GPUWait   time.Duration
	// Defaults are the shipped limits, Limits those that somebody asked for.
	// They are kept apart because a default yields to a small machine and a
	// limit that was asked for does not.
	Defaults, Limits policy.Limits

	AllowNetwork, AllowRoot bool
	Max                     policy.Limits

	// AllowEgress and the rest say what the proxies of runs may do.
	AllowEgress               policy.NetworkLevel
	AllowPrivateEgress        bool
	EgressDefaults, MaxEgress policy.EgressLimits

	AllowUnlocked bool
	// Engine is the engine that is meant; the zero value is that of the docker
	// command.
	Engine                  docker.Address
	StateDir, Catalog, Lock string
	GPUDir                  string
	// ToolRegistry and Profiles are files of contracts; empty for the shipped ones.
	ToolRegistry, Profiles string
	Strict, OpenAllowlist  bool
	// Dependencies are folders that contracts of level extended may read.
	Dependencies     []string
	JSON, Quiet, Raw bool

	origins []origin
}

// origin is one value and where it came from.
type origin struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// policy is what the settings permit.
func (s settings) policy() policy.Policy {
	registries, err := policy.LoadRegistries(configs.Registries(), "configs/registries.yaml")
	if err != nil {
		panic(err) // a test reads the file that is embedded
	}
	return policy.Policy{
		Defaults: s.Defaults, Max: s.Max,
		AllowNetwork: s.AllowNetwork, AllowRoot: s.AllowRoot,
		AllowEgress: s.AllowEgress, AllowPrivateEgress: s.AllowPrivateEgress, Registries: registries,
		EgressDefaults: s.EgressDefaults, MaxEgress: s.MaxEgress,
	}
}

// A settingError is a value or a key that cannot be used.
type settingError struct {
	// Source is the file, the variable or the flag.
	Source string
	// Key is the key in a file; empty for a variable or a flag, whose name is
	// in Source.
	Key, Value string
	// Flag says that the value was given on the command line.
	Flag bool
	Err  error
	// Advice is a hint; it may be empty.
	Advice string
}

func (e *settingError) Error() string {
	where := e.Source
	if e.Key != "" {
		where += ": " + e.Key
	}
	if e.Value != "" {
		where += fmt.Sprintf(" %q", e.Value)
	}
	return fmt.Sprintf("%s: %v", where, e.Err)
}

func (e *settingError) Unwrap() error { return e.Err }

func (e *settingError) Hint() string { return e.Advice }

// valueAdvice is what to try about a value that is refused. `sandbox config` shows
// nothing as long as it stands anywhere but on the command line.
func valueAdvice(l layer, v value) string {
	switch {
	case l.flags:
		return limitsHint
	case v.key == "":
		return "correct " + v.source + ", or unset it"
	}
	return "correct " + v.key + " in the file, or leave it out"
}

// resolve decides every key: the last layer that has it wins. All problems are
// reported, joined.
func resolve(layers []layer) (settings, error) {
	var s, shipped settings
	var errs []error
	for _, k := range keys {
		winner := -1
		for i, l := range layers {
			if _, ok := l.values[k.name]; ok {
				winner = i
			}
		}
		if winner < 0 {
			errs = append(errs, fmt.Errorf("settings: %s has no default", k.name))
			continue
		}
		l := layers[winner]
		into := &s
		if l.shipped && k.limit {
			into = &shipped
		}
		v := l.values[k.name]
		if err := k.target(into)(v.text); err != nil {
			errs = append(errs, &settingError{
				Source: v.source, Key: v.key, Value: v.text, Flag: l.flags, Err: err, Advice: valueAdvice(l, v),
			})
			continue
		}
		s.origins = append(s.origins, origin{Key: k.name, Value: v.text, Source: v.source})
	}
	errs = append(errs, s.oneEngine(layers))
	s.Defaults = shipped.Limits
	return s, errors.Join(errs...)
}
