package enginetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Options describe an engine for [Run].
type Options struct {
	// New connects to the engine, each time as another process would. The suite closes the
	// returned engine.
	New func(t *testing.T) engine.Engine
	// Image is the reference of an image that has python3.
	Image string
	// Scripted means that the engine runs the functions of the cases, as [NewScripted]
	// does, and that its containers have no kernel.
	Scripted bool
	// Orphan prepares a container in another process, starts job in it unless job is nil, and
	// kills the process. If Orphan is nil, the suite uses the test's own binary.
	Orphan func(t *testing.T, class spec.Class, meta engine.Meta, job *spec.Job) engine.Ref
	// Breakable connects to the engine in a way that stop breaks, including existing
	// connections, and start restores. The containers keep running meanwhile.
	Breakable func(t *testing.T) (e engine.Engine, stop, start func())
	// Labels are added to all containers, so that those of a killed test can be found.
	Labels map[string]string
	// Without lists what the engine cannot do as "name: reason", with the name of a group or
	// of a case. The list is printed. A group or case that cannot run and is not listed fails.
	Without []string
}

// labelSuite distinguishes the containers of one suite from those of others.
const labelSuite = "org.evalbox.test.suite"

// Run checks that an engine fulfills the contract. Call it from a test of its own.
func Run(t *testing.T, options Options) {
	s := &suite{Options: options, id: randomID(), top: t.Name()}
	if text := os.Getenv(orphanEnv); text != "" {
		s.beOrphan(t, text)
	}
	for _, without := range options.Without {
		t.Log("without ", without)
	}
	type group struct {
		name string
		test func(t *testing.T, s *suite)
	}
	t.Run("apart", func(t *testing.T) { // groups that do not disturb each other
		s.programs(t)
		for _, group := range []group{
			{"ready", testReady}, {"names", testNames}, {"sources", testSources}, {"masks", testMasks}, {"directory", testDirectoryThatIsGone},
			{"images", testImages}, {"removal", testRemoval}, {"look", testLook}, {"pass", testPass}, {"warm", testWarm}, {"canceled", testCanceled}, {"many", testMany}, {"sample", testSample},
			{"disconnect", testDisconnect}, {"waiting", testWaiting}, {"signals", testSignals}, {"writers", testWriters},
			{"stuck stdin", testStuckStdin}, {"unasked stdin", testUnaskedStdin}, {"release", testRelease}, {"open", testOpen}, {"staging", testStaging},
			{"list", testList}, {"foreign", testForeign}, {"relay", testRelay}, {"close", testClose}, {"attacks", testAttacks},
		} {
			if s.can(group.name) {
				t.Run(group.name, func(t *testing.T) {
					t.Parallel()
					group.test(t, s)
				})
			}
		}
	})
	for _, group := range []group{{"orphan", testOrphan}, {"outage", testOutage}} {
		if s.can(group.name) {
			t.Run(group.name, func(t *testing.T) { group.test(t, s) })
		}
	}
	s.nothingLeft(t)
}

type suite struct {
	Options
	id, top string
	once    sync.Once
	image   images.Resolved
	info    engine.Info
}

// can reports whether the engine can run a group or case.
func (s *suite) can(name string) bool {
	return !slices.ContainsFunc(s.Without, func(without string) bool { return strings.HasPrefix(without, name+": ") })
}

// connect returns an engine that is closed at the end of the test.
func (s *suite) connect(t *testing.T) engine.Engine {
	t.Helper()
	e := s.New(t)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	s.once.Do(func() {
		var err error
		s.image, err = e.Resolve(t.Context(), s.Image)
		require.NoError(t, err)
		s.info, err = e.Info(t.Context())
		require.NoError(t, err)
	})
	return e
}

func randomID() string {
	raw := make([]byte, 5)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// Settings of every class of the suite.
const (
	mib      = 1 << 20
	memory   = 128 * mib
	pids     = 24
	noFile   = 256
	tmpSize  = 16 * mib
	shmSize  = 8 * mib
	userID   = 64646
	classEnv = "of the class"
)

func (s *suite) class() spec.Class {
	return spec.Class{
		Image:   spec.Image{Reference: s.image.Reference, ID: s.image.ID, Digest: s.image.Digest, Platform: s.image.Platform},
		Runtime: s.info.Host.DefaultRuntime, User: spec.DedicatedUser, WorkDir: spec.WorkDir, Network: "none",
		ReadOnlyRoot: true, NoNewPrivileges: true, CapDrop: []string{"ALL"}, Seccomp: spec.DefaultSeccomp(), IPC: "private",
		Cgroup:  spec.Cgroup{Version: s.info.Host.CgroupVersion, MemoryBytes: memory, NanoCPUs: 1e9, PIDs: pids, ShmBytes: shmSize},
		Ulimits: []spec.Ulimit{{Name: "core"}, {Name: "nofile", Soft: noFile, Hard: noFile}},
		Tmpfs: []spec.Tmpfs{{Target: spec.TmpDir, SizeBytes: tmpSize, Inodes: 1000},
			{Target: spec.WorkDir, SizeBytes: tmpSize, Inodes: 1000}},
		Env: []string{"CHANGED=" + classEnv, "HOME=/tmp", "KEPT=" + classEnv},
		Log: spec.BoundedLog(), Transfer: spec.TransferBind,
	}
}

func (s *suite) meta(t *testing.T) engine.Meta {
	id := "t" + randomID()
	labels := map[string]string{spec.LabelManaged: "true", spec.LabelRun: id, spec.LabelName: t.Name(), labelSuite: s.id}
	maps.Copy(labels, s.Labels)
	return engine.Meta{Name: spec.Job{RunID: id}.ContainerName(), Labels: labels}
}

// python is a job that runs a program. A scripted engine finds the program by its name.
func python(name, program string) spec.Job {
	return spec.Job{Name: name, Command: []string{"python3", "-u", "-c", program}, TimeoutSeconds: 120, GraceSeconds: 2}
}

// prepared connects to the engine and prepares a container of the usual class.
func (s *suite) prepared(t *testing.T) (engine.Engine, engine.Container) {
	t.Helper()
	e := s.connect(t)
	return e, s.must(t, e, s.class(), s.meta(t))
}

// must prepares a container that is removed at the end of the test.
func (s *suite) must(t *testing.T, e engine.Engine, class spec.Class, meta engine.Meta) engine.Container {
	t.Helper()
	c, err := e.Prepare(t.Context(), class, meta)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := c.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("removing %s: %v", meta.Name, err)
		}
	})
	return c
}

// found lists the containers of this suite: all, or those of one name.
func (s *suite) found(t *testing.T, e engine.Engine, name string) []engine.Found {
	t.Helper()
	all, err := e.List(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(f engine.Found) bool {
		return f.Labels[labelSuite] != s.id || name != "" && f.Name != name
	})
}

func (s *suite) nothingLeft(t *testing.T) {
	e := s.connect(t)
	// The last ones may still be on their way out.
	assert.Eventually(t, func() bool { return len(s.found(t, e, "")) == 0 }, 30*time.Second, 20*time.Millisecond)
	for _, found := range s.found(t, e, "") {
		t.Errorf("%s of %s is left: %s", found.Name, found.Labels[spec.LabelName], found.Status)
		if err := e.Remove(t.Context(), found.ID); err != nil {
			t.Error(err)
		}
	}
	if copier, ok := e.(engine.Copier); ok {
		volumes, err := copier.Volumes(t.Context())
		require.NoError(t, err)
		for _, volume := range volumes {
			if volume.Labels[labelSuite] == s.id {
				t.Errorf("the volume %s is left", volume.Name)
			}
		}
	}
}
