package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Policy is the policy that the settings describe.
func (s Settings) Policy() policy.Policy {
	registries, err := policy.LoadRegistries(configs.Registries(), "configs/registries.yaml")
	if err != nil {
		panic(err) // a test reads the file that is embedded
	}
	return policy.Policy{
		Defaults: s.Defaults, Max: s.Max, HardDisk: s.DiskBound == HardDisk, OrphanTimeout: s.OrphanTimeout,
		AllowNetwork: s.AllowNetwork, AllowRoot: s.AllowRoot, AllowUnenforced: s.AllowUnenforced, MinIsolation: s.MinIsolation,
		AllowEgress: s.AllowEgress, AllowPrivateEgress: s.AllowPrivateEgress, Registries: registries,
		EgressDefaults: s.EgressDefaults, MaxEgress: s.MaxEgress,
	}
}

// Request is the part of every request that the settings decide.
func (s Settings) Request() sandbox.Request {
	return sandbox.Request{
		Image: s.Image, AllowUnlocked: s.AllowUnlocked, Runtime: s.Runtime, User: s.User, Isolation: s.Isolation, Network: s.Network, Transfer: s.Transfer,
		GPUs: s.GPUs, GPUDriver: s.GPUDriver, GPUShare: s.GPUShare, GPUWait: s.GPUWait, Limits: s.Limits, SoftSignal: s.SoftSignal, Preload: s.Preload, StopWhen: s.StopWhen,
	}
}

// Timeout is the time limit that somebody asked for, or else the shipped
// one, lowered to the ceiling.
func (s Settings) Timeout() time.Duration {
	shipped := s.Defaults.Timeout
	if s.Max.Timeout > 0 {
		shipped = min(shipped, s.Max.Timeout)
	}
	return cmp.Or(s.Limits.Timeout, shipped)
}

// Catalog reads the image catalog that the settings name.
func (s Settings) Catalog() (images.Catalog, error) {
	if s.CatalogFile == "" {
		return images.LoadCatalog(configs.Images(), "images.yaml")
	}
	data, err := fsx.Read(s.CatalogFile, maxCatalog)
	if err != nil {
		return images.Catalog{}, fileError("catalog", s.CatalogFile, err, "leave --catalog out for the shipped one")
	}
	return images.LoadCatalog(data, s.CatalogFile)
}

// StateDirectory is the directory of records and leases.
func (s Settings) StateDirectory() (string, error) {
	if s.StateDir != "" {
		return s.StateDir, nil
	}
	dir, err := record.DefaultDir()
	if err != nil {
		return "", &Error{Err: err, Advice: "set HOME, or name a directory with --state-dir"}
	}
	return dir, nil
}

// Store opens the records.
func (s Settings) Store() (*record.Store, error) {
	dir, err := s.StateDirectory()
	if err != nil {
		return nil, err
	}
	return record.Open(dir)
}

// Client is a client of the Docker engine that the settings and the environment name. The caller
// closes it.
func (s Settings) Client() (*dockerhost.Client, error) {
	endpoint, err := dockerhost.Find(s.Engine)
	if err != nil {
		return nil, err
	}
	return endpoint.Client()
}

// OpenEngine opens the engine for runs: the engine of Client, or a cluster through connect, which is nil in
// a program without Kubernetes. Failures that have no caller, such as the failure of a removal in the
// background, are logged. The caller closes the engine.
func (s Settings) OpenEngine(log *slog.Logger, connect engine.Connector) (engine.Engine, error) {
	switch {
	case s.EngineKind != Kubernetes:
		return docker.Connect(s.Engine, docker.WithLogger(log))
	case connect == nil:
		return nil, &Error{
			Err: fmt.Errorf("%s: engine %q: this program does not contain it", s.origin("engine").Source, Kubernetes),
			Advice: "import github.com/evalbox/evalbox/sandbox/engine/kubernetes, and give evalbox.New the option " +
				"sandbox.WithKubernetes(kubernetes.Connect)",
		}
	}
	return connect(s.Cluster)
}

// Runner makes the runner that the settings describe, with further options. The caller closes it.
func (s Settings) Runner(log *slog.Logger, more ...sandbox.Option) (*sandbox.Runner, error) {
	catalog, err := s.Catalog()
	if err != nil {
		return nil, err
	}
	lock, locked, err := s.Lock()
	if err != nil {
		return nil, err
	}
	dir, err := s.StateDirectory()
	if err != nil {
		return nil, err
	}
	options := []sandbox.Option{
		sandbox.WithCatalog(catalog), sandbox.WithPolicy(s.Policy()), sandbox.WithStateDir(dir), sandbox.WithLogger(log), sandbox.WithKeeper(),
		sandbox.WithEngineFrom(func(connect engine.Connector) (engine.Engine, error) { return s.OpenEngine(log, connect) }),
	}
	if s.EngineKind == Kubernetes {
		options = append(options, sandbox.WithImages(s.ClusterImages))
	}
	if locked {
		options = append(options, sandbox.WithLock(lock))
	}
	if s.GPUDir != "" {
		options = append(options, sandbox.WithGPUDir(s.GPUDir))
	}
	if s.UIDRange != "" {
		options = append(options, sandbox.WithUIDs(s.UIDRange))
	}
	return sandbox.New(append(options, more...)...)
}

const lockName = "images.lock"

// LockPath is the file of the image lock, which need not exist: the one that the settings
// name, or the one beside a catalog that they name, or else the user's. It is empty for
// an account without a directory for configuration. It does not depend on the working
// directory.
func (s Settings) LockPath() string {
	if s.LockFile != "" {
		return s.LockFile
	}
	if s.CatalogFile != "" {
		beside := filepath.Join(filepath.Dir(s.CatalogFile), lockName)
		if _, err := os.Lstat(beside); err == nil {
			return beside
		}
	}
	return userLock()
}

// userLock is the user's own lock, which need not be there. It is empty for an
// account without a directory for configuration.
func userLock() string {
	file := UserFile()
	if file == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(file), lockName)
}

// LockToWrite is [Settings.LockPath]; without a path it is an error.
func (s Settings) LockToWrite() (string, error) {
	if path := s.LockPath(); path != "" {
		return path, nil
	}
	return "", &Error{
		Err:    errors.New("image lock: this account has no directory for configuration"),
		Advice: "set HOME, or name a file with --lock",
	}
}

// PlaceOfLock is the file of an image lock that is about to be written. Its directory
// must be there, except the user's own: a typing mistake would make one.
func (s Settings) PlaceOfLock() (string, error) {
	path, err := s.LockToWrite()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(path)
	if path == userLock() {
		err = os.MkdirAll(dir, 0o700)
	} else {
		_, err = os.Stat(dir)
	}
	if err != nil {
		return "", &Error{
			Err:    fmt.Errorf("image lock %s: its directory cannot be used: %w", path, err),
			Advice: "make the directory, or name another file with --lock",
		}
	}
	return path, nil
}

// Lock reads the image lock, if there is one. A file that was named must exist, because a
// typing mistake would silently lift the rule.
func (s Settings) Lock() (held lock.Lock, there bool, err error) {
	path := s.LockPath()
	if path == "" {
		return lock.Lock{}, false, nil
	}
	held, err = lock.Read(path)
	if errors.Is(err, fs.ErrNotExist) && s.LockFile == "" {
		return lock.Lock{}, false, nil
	}
	return held, err == nil, err
}

// AllLocks are the image lock and the user's own, as far as they exist: the images of both
// are needed.
func (s Settings) AllLocks() ([]lock.Lock, error) {
	held, _, err := s.Lock()
	if err != nil {
		return nil, err
	}
	own := userLock()
	if own == "" || own == s.LockPath() {
		return []lock.Lock{held}, nil
	}
	more, err := lock.Read(own)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return []lock.Lock{held, more}, nil
}
