package spec

import "github.com/evalbox/evalbox/internal/owner"

// Ways to make the files of a run available to the engine.
const (
	// TransferAuto detects whether the engine shares the controller's file system.
	TransferAuto = "auto"
	// TransferBind mounts the directories themselves.
	TransferBind = "bind"
	// TransferCopy copies the program and its input to the engine before the run, and
	// ./final back afterwards.
	TransferCopy = "copy"
)

// LabelPart says which part of a run a helper container or volume is, for runs whose files
// are copied. The run's own container does not have this label.
const LabelPart = owner.LabelPart

// Parts of a run whose files are copied, and the part that belongs to no run.
const (
	// PartVolume is the staging volume, which holds the files.
	PartVolume = "depot"
	// PartHelper is the helper container, never started, through which the staging volume
	// is filled and read.
	PartHelper = "courier"
	// PartMonitor is the disk monitor: the container that measures the disk usage of the
	// staging volume.
	PartMonitor = "watcher"
	// PartInit is the volume that holds the init of all containers. It is also the helper
	// container, never started, through which that volume is filled.
	PartInit = "init"
)

// VolumeName is the name of a run's staging volume. Volumes have a name space of their own.
func VolumeName(runID string) string { return namespace + "-" + runID }

// HelperName is the name of the helper container that fills and reads the staging volume.
// It cannot collide with the container of a run, whose name begins with "evalbox-".
func HelperName(runID string) string { return namespace + "_courier-" + runID }

// MonitorName is the name of the disk monitor; see [HelperName].
func MonitorName(runID string) string { return namespace + "_watcher-" + runID }

// VolumeDir is the mount point of a volume in its helper containers.
const VolumeDir = "/evalbox"
