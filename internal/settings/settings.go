// Package settings finds the settings of the command line, and makes from them a policy, an
// image catalog, an image lock, an engine, and a runner.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/viper"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// The kinds of engines.
const (
	Docker     = "docker"
	Kubernetes = "kubernetes"
)

// HardDisk is the disk bound of a policy that gives each run a file system of the size of its limit.
const HardDisk = "hard"

// Settings are the effective values of all keys of configs/sandbox.yaml.
type Settings struct {
	Image, Runtime, User, Network, GPUs, Transfer string
	// GPUDriver, GPUShare and GPUWait say how GPUs are got.
	GPUDriver string
	GPUShare  bool
	GPUWait   time.Duration
	// Defaults are the shipped limits, Limits those that somebody asked for.
	// They are kept apart because a default yields to a small machine and a
	// limit that was asked for does not.
	Defaults, Limits policy.Limits

	// DiskBound is [HardDisk], or "auto" or empty.
	DiskBound string
	// Preload are the modules of [sandbox.Request].Preload.
	Preload []string
	// SoftSignal is the signal of Limits.SoftTimeout.
	SoftSignal string
	// StopWhen are the stop rules of every run.
	StopWhen []string

	// OrphanTimeout bounds programs whose controller has gone; 0 is none.
	OrphanTimeout time.Duration

	AllowNetwork, AllowRoot, AllowUnenforced bool
	Max                                      policy.Limits

	// AllowEgress and the next fields are rules for the proxies of runs.
	AllowEgress               policy.NetworkLevel
	AllowPrivateEgress        bool
	EgressDefaults, MaxEgress policy.EgressLimits

	AllowUnlocked bool
	// EngineKind is [Docker] or [Kubernetes]; empty is Docker. Engine is the address of the Docker
	// engine; the zero value is that of the docker command. Cluster selects the cluster, and
	// ClusterImages are its images for names of the catalog.
	EngineKind    string
	Engine        docker.Address
	Cluster       engine.Cluster
	ClusterImages map[string]string
	// StateDir, GPUDir, CatalogFile and LockFile are paths; empty for the usual ones.
	StateDir, GPUDir, CatalogFile, LockFile string
	// Isolation is the grade that a run asks for, and MinIsolation the lowest one that the
	// policy permits; empty for any.
	Isolation, MinIsolation policy.IsolationGrade
	// UIDRange is the range of user IDs of runs, see [sandbox.WithUIDs]; empty for the usual
	// one.
	UIDRange string
	// PoolSize and PoolMemory bound the containers that wait for runs, see [sandbox.Pool]; a size
	// of 0 means that none do unless a command asks for them. PoolIdle is after how long without
	// a run the process ends that keeps them.
	PoolSize   int64
	PoolMemory policy.Size
	PoolIdle   time.Duration
	// ToolRegistry and Profiles are files of contracts; empty for the shipped ones.
	ToolRegistry, Profiles string
	// Adapters is a directory of adapters of tools, beside the shipped ones; empty for none.
	Adapters              string
	Strict, OpenAllowlist bool
	// Dependencies are directories that contracts of level extended may read.
	Dependencies     []string
	JSON, Quiet, Raw bool

	origins []Origin
}

// An Origin is one value and the place that it came from.
type Origin struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// An Error is a key, a value or a file that cannot be used.
type Error struct {
	// Err names the place and the rule.
	Err error
	// Usage says that the value was given as a flag and could not be read. A value that
	// is merely out of range is refused in the same way from everywhere.
	Usage bool
	// Advice is a hint; it may be empty.
	Advice string
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Hint is the advice.
func (e *Error) Hint() string { return e.Advice }

// LimitsAdvice is the advice for a limit that is refused.
const LimitsAdvice = "see the limits, and where they come from, with: sandbox config"

// layer is a kind of place that settings come from; a higher one wins.
type layer int

const (
	fromDefault layer = iota
	fromUser
	fromProject
	fromVariable
	fromFlag
)

// A value is the text of one setting with its place: viper keeps no places, so that they
// travel with the values.
type value struct {
	text string
	// source is the file with its line, the variable or the flag; key is the key in a file.
	source, key string
	from        layer
}

// problem is an error about the value.
func (v value) problem(err error) *Error {
	where := v.source
	if v.key != "" {
		where += ": " + v.key
	}
	if v.text != "" {
		where += fmt.Sprintf(" %q", v.text)
	}
	e := &Error{Err: fmt.Errorf("%s: %w", where, err), Usage: v.from == fromFlag && !errors.Is(err, errOutOfRange)}
	switch v.from {
	case fromFlag:
		e.Advice = LimitsAdvice
	case fromVariable:
		// `sandbox config` shows nothing as long as the value is wrong, here and in a file.
		e.Advice = "correct " + v.source + ", or unset it"
	default:
		e.Advice = "correct " + v.key + " in the file, or leave it out"
	}
	return e
}

const (
	envPrefix = "SANDBOX"
	// configVariable names the file that replaces ./sandbox.yaml.
	configVariable = envPrefix + "_CONFIG"
)

// Load finds the value of every key: flags win over variables, these over ./sandbox.yaml,
// this over the user's file, that over the shipped defaults. The file that is named, or
// that of SANDBOX_CONFIG, replaces ./sandbox.yaml. All problems are reported, joined; most
// are of type [Error].
func Load(file string, flags Flags) (Settings, error) {
	shipped, err := shippedValues()
	if err != nil {
		return Settings{}, err
	}
	user, userErr := readFile(UserFile(), fromUser, true, false)
	project, projectErr := projectFile(file)
	if err := errors.Join(userErr, unknownVariables(), projectErr); err != nil {
		return Settings{}, err
	}

	layers := viper.NewWithOptions(viper.KeyDelimiter("\x00")) // keys are flat: max.memory is one
	for name, v := range shipped {
		layers.SetDefault(name, v)
	}
	if err := errors.Join(layers.MergeConfigMap(user), layers.MergeConfigMap(project)); err != nil {
		return Settings{}, err
	}
	layers.SetEnvPrefix(envPrefix)
	layers.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	layers.AllowEmptyEnv(true)
	layers.AutomaticEnv()
	for name, flag := range flags {
		layers.Set(name, value{text: flag.Text, source: flag.Name, from: fromFlag})
	}
	return decide(layers)
}

// decide takes every value from the strongest layer that has it.
func decide(layers *viper.Viper) (Settings, error) {
	var s Settings
	var errs []error
	found := map[string]value{}
	for _, k := range keysOf(&s) {
		var v value
		switch got := layers.Get(k.name).(type) {
		case value:
			v = got
		case string: // viper reads the environment itself
			v = value{text: got, source: k.variable(), from: fromVariable}
		default:
			errs = append(errs, fmt.Errorf("settings: %s has no default", k.name))
			continue
		}
		set := k.set
		if v.from == fromDefault && k.setDefault != nil {
			set = k.setDefault
		}
		if err := set(v.text); err != nil {
			errs = append(errs, v.problem(err))
			continue
		}
		found[k.name] = v
		s.origins = append(s.origins, Origin{Key: k.name, Value: v.text, Source: v.source})
	}
	errs = append(errs, s.oneEngine(found["context"], found["host"]))
	if s.EngineKind == Kubernetes {
		errs = append(errs, s.noDocker(found["engine"], "context", found["context"]), s.noDocker(found["engine"], "host", found["host"]))
	}
	const wait = "kubernetes.schedule_timeout"
	if v := found[wait]; s.EngineKind != Kubernetes && v.from == fromFlag {
		e := v.problem(errors.New("is for pods, and the engine is docker"))
		e.Usage, e.Advice = false, "leave it out, or choose a cluster with --engine kubernetes; for GPUs of Docker there is --gpu-wait"
		errs = append(errs, e)
	}
	return s, errors.Join(errs...)
}

// oneEngine decides between a context and a host. As for any other setting the
// stronger layer wins; one that has both contradicts itself.
func (s *Settings) oneEngine(context, host value) error {
	switch {
	case context.text == "" || host.text == "":
	case context.from > host.from:
		s.Engine.Host = ""
		s.show("host", "")
	case context.from < host.from:
		s.Engine.Context = ""
		s.show("context", "")
	default:
		e := context.problem(fmt.Errorf("cannot be given together with %s", cmp.Or(host.key, host.source)))
		e.Advice = "leave one of the two out; see where settings come from with: sandbox config"
		return e
	}
	return nil
}

// noDocker leaves an address of Docker out that is weaker than the choice of a cluster. Any other
// contradicts it.
func (s *Settings) noDocker(kind value, name string, address value) error {
	switch {
	case address.text == "" || s.shown(name) == "":
		return nil
	case address.from < kind.from:
		s.Engine.Context, s.Engine.Host = "", ""
		s.show(name, "")
		return nil
	}
	e := address.problem(fmt.Errorf("names a Docker engine, but %s is kubernetes", cmp.Or(kind.key, kind.source)))
	e.Usage = false // each value can be read
	e.Advice = "leave it out, or choose Docker with --engine docker"
	if name == "context" {
		e.Advice += "; the context of a cluster is kubernetes.context or SANDBOX_KUBERNETES_CONTEXT"
	}
	return e
}

// shown is the value that is shown for a key.
func (s *Settings) shown(key string) string { return s.origin(key).Value }

// show replaces the value that is shown for a key, and returns its origin.
func (s *Settings) show(key, value string) *Origin {
	o := s.origin(key)
	o.Value = value
	return o
}

func (s *Settings) origin(key string) *Origin {
	return &s.origins[slices.IndexFunc(s.origins, func(o Origin) bool { return o.Key == key })]
}

// Origins are all keys with their values in the order of configs/sandbox.yaml. Paths that
// are not set are the usual ones.
func (s Settings) Origins() []Origin {
	s.origins = slices.Clone(s.origins)
	if s.StateDir == "" {
		// Where there is none, commands that need one say so.
		dir, _ := s.StateDirectory()
		s.show("state_dir", dir)
	}
	if s.LockFile == "" {
		o := s.show("lock", s.LockPath())
		if s.CatalogFile != "" && o.Value == filepath.Join(filepath.Dir(s.CatalogFile), lockName) {
			o.Source = "beside the catalog"
		}
	}
	return s.origins
}

// UserFile is the user's settings file, which need not be there. It is empty for an
// account without a directory for configuration.
func UserFile() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "evalbox", "sandbox.yaml")
}

// projectFile reads the file that was named, which the operator thereby trusts, or else
// ./sandbox.yaml, which may have come with a directory of another person.
func projectFile(file string) (map[string]any, error) {
	if file = cmp.Or(file, os.Getenv(configVariable)); file != "" {
		return readFile(file, fromProject, true, true)
	}
	return readFile("sandbox.yaml", fromProject, false, false)
}

// unknownVariables refuses every variable with our prefix that is not a key: a limit with
// a typing mistake would silently not be one.
func unknownVariables() error {
	var known []string
	for _, k := range keys() {
		known = append(known, k.variable())
	}
	var errs []error
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		// A program of a run has a deadline, also if it is this command.
		if strings.HasPrefix(name, envPrefix+"_") && name != configVariable && name != policy.DeadlineEnv && !slices.Contains(known, name) {
			errs = append(errs, &Error{Err: fmt.Errorf("%s: unknown setting in the environment", name), Advice: didYouMean(name, known)})
		}
	}
	return errors.Join(errs...)
}
