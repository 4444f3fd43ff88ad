package sandbox

import (
	"context"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/internal/transfer"
)

// Ways in which the files of a run reach the engine.
const (
	// TransferAuto finds out whether the engine shares our file system.
	TransferAuto = "auto"
	// TransferBind mounts the folders themselves.
	TransferBind = "bind"
	// TransferCopy copies program and input to the engine before the run, and
	// ./final back after it.
	TransferCopy = "copy"
)

// LabelPart says which part of a run whose files are copied a container or volume
// is. The run's own container does not have it.
const LabelPart = owner.LabelPart

// Parts of a run whose files are copied.
const (
	// PartDepot is the volume that holds the files.
	PartDepot = "depot"
	// PartCourier is the container, never started, through which the depot is
	// filled and read.
	PartCourier = "courier"
	// PartWatcher is the container that looks at the depot's disk.
	PartWatcher = "watcher"
)

// Courier is what an [Engine] does for runs whose files are copied. Such a run
// has a depot: a folder on the engine's machine, whose host paths are mounted as
// the caller's own are in the other way. All methods may be called concurrently,
// and for a run that has no depot.
type Courier interface {
	// Sees reports whether the engine finds something at each of these absolute
	// paths. It makes nothing that stays.
	Sees(ctx context.Context, imageID string, paths ...string) (bool, error)
	// SeesSame reports whether the engine finds at each of these absolute paths
	// what is there: of the same kind, rights, size and time of change, to the
	// nanosecond. It makes nothing that stays.
	SeesSame(ctx context.Context, imageID string, paths ...string) (bool, error)
	// MakeDepot makes the depot of a Spec whose image is resolved, with these
	// labels on all its parts, and returns its host path on the engine's
	// machine. A name that is taken is an error that satisfies errors.Is with
	// [ErrNameTaken]; it is then another run's, and not to be removed.
	MakeDepot(ctx context.Context, spec Spec, labels map[string]string) (string, error)
	// MendDepot makes the courier of a depot again, which somebody removed. The
	// files are where they were; when they are not, it is an error.
	MendDepot(ctx context.Context, spec Spec, labels map[string]string) error
	// FillDepot unpacks an archive in the depot. It takes as long as it takes,
	// as long as it gets on. Without a courier it is an error that satisfies
	// errors.Is with [ErrNoContainer].
	FillDepot(ctx context.Context, runID string, archive io.Reader) error
	// FetchDepot is the archive of one path below the depot. The names in it
	// begin with the path's last element. The path must not hold a link. Without
	// a courier it is an error as of FillDepot.
	FetchDepot(ctx context.Context, runID, path string) (io.ReadCloser, error)
	// WatchDepot starts the watcher of a depot, instead of one that is there.
	// Its streams speak as [transfer.Script] does; closing them ends it.
	WatchDepot(ctx context.Context, spec Spec, labels map[string]string) (Streams, error)
	// RemoveDepot removes all parts. It is safe to call twice and after a
	// failed MakeDepot.
	RemoveDepot(ctx context.Context, runID string) error
	// Depots lists the volumes that carry our label.
	Depots(ctx context.Context) ([]Depot, error)
}

// Depot is one volume of ours, as found by its labels.
type Depot struct {
	Name   string
	Labels map[string]string
}

// Names of the parts. No run's own container can have them: those begin with
// "evalbox-". Volumes have names of their own.
func depotName(runID string) string   { return namespace + "-" + runID }
func courierName(runID string) string { return namespace + "_courier-" + runID }
func watcherName(runID string) string { return namespace + "_watcher-" + runID }

// depotDir is where the depot's parts have it.
const depotDir = "/evalbox"

// Limits of a helper. The list of a million files with several names each takes
// du some 64 MiB.
const (
	helperMemory = 128 << 20
	helperPIDs   = 32
	helperCPUs   = 1e9
)

// helperSpec is the plan of a courier or a watcher: as walled in as the run
// itself, from the same image, and without anything of the run.
func helperSpec(run Spec, user string, command ...string) Spec {
	spec := Spec{Schema: run.Schema, Class: run.Class}
	spec.Class.User = user
	spec.Class.WorkDir = "/"
	spec.Class.Network = "none"
	spec.Class.Cgroup.MemoryBytes = helperMemory
	if spec.Class.Cgroup.PIDs = helperPIDs; strings.HasPrefix(run.Class.Runtime, "runsc") {
		spec.Class.Cgroup.PIDs = gvisorPIDs
	}
	spec.Class.Cgroup.NanoCPUs = min(run.Class.Cgroup.NanoCPUs, helperCPUs)
	spec.Class.Cgroup.ShmBytes = 1 << 20
	spec.Class.Ulimits = []Ulimit{{Name: "core"}}
	spec.Class.Tmpfs, spec.Class.Binds, spec.Class.Masks, spec.Class.Env = nil, nil, nil, nil
	spec.Class.Init, spec.Class.Seccomp = true, seccompFor(false)
	spec.Class.GPUs = GPURequest{}
	spec.Class.Log = Log{Driver: "none"}
	spec.Job = Job{RunID: run.Job.RunID, Command: command}
	return spec
}

// watcherCommand is the watcher's program.
func watcherCommand() []string {
	return []string{"/bin/sh", "-c", transfer.Script, "watcher", path.Join(depotDir, transfer.OutDir), watchedEntries}
}

// depotPaths are the host paths of a run whose files are copied.
func depotPaths(root string, spec Spec) HostPaths {
	paths := HostPaths{}
	if len(spec.Class.Masks) > 0 {
		paths[roleEmpty] = path.Join(root, transfer.EmptyFile)
	}
	for i := range spec.Job.Mounts {
		paths[mountRole(i)] = path.Join(root, transfer.MountsDir, strconv.Itoa(i))
	}
	for i := range spec.Job.Trees {
		paths[treeRole(i)] = path.Join(root, transfer.TreesDir, strconv.Itoa(i))
	}
	for _, bind := range spec.Class.Binds {
		switch bind.Role {
		case RoleProgram:
			paths[RoleProgram] = path.Join(root, transfer.ProgramDir, path.Base(bind.Target))
		case RoleInput:
			paths[RoleInput] = path.Join(root, transfer.InputDir)
		case RoleFinal:
			paths[RoleFinal] = path.Join(root, transfer.FinalDir)
		}
	}
	return paths
}

// planTransfer checks how files are to reach the engine. The pure plan takes
// "auto" for the usual case; [Runner.Run] has found out before.
func planTransfer(asked string) (string, error) {
	switch asked {
	case "", TransferAuto, TransferBind:
		return TransferBind, nil
	case TransferCopy:
		return TransferCopy, nil
	}
	return "", &policy.FieldError{Field: "transfer", Value: asked, Rule: "must be auto, bind or copy"}
}
