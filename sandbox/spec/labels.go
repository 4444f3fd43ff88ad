package spec

import "github.com/evalbox/evalbox/internal/owner"

// namespace is the prefix of the names of evalbox's objects on an engine.
const namespace = "evalbox"

// HostName is the hostname of every container.
const HostName = "sandbox"

// Labels of every container of evalbox. They are all that a later process knows of a run
// whose controller died.
const (
	LabelManaged  = owner.LabelManaged
	LabelRun      = "org.evalbox.run"
	LabelName     = "org.evalbox.name"
	LabelOwner    = owner.LabelOwner
	LabelDeadline = owner.LabelDeadline
	LabelKeep     = "org.evalbox.keep"
	LabelSpec     = "org.evalbox.spec"
	LabelState    = "org.evalbox.state-dir"
)

// LabelPart says which part of a run a helper container or volume is. The run's own
// container does not have this label.
const LabelPart = owner.LabelPart

// Parts of a run whose files are copied, and one part that does not belong to a run.
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

// ContainerName is the name of the run's container. It is known before the container
// exists, so that the container can be found even if the controller dies while creating
// it.
func (j Job) ContainerName() string { return namespace + "-" + j.RunID }

// VolumeName is the name of a run's staging volume. Volumes have a name space of their own.
func VolumeName(runID string) string { return namespace + "-" + runID }

// HelperName is the name of the helper container that fills and reads the staging volume.
// It cannot collide with the container of a run, whose name begins with "evalbox-".
func HelperName(runID string) string { return namespace + "_courier-" + runID }

// MonitorName is the name of the disk monitor; see [HelperName].
func MonitorName(runID string) string { return namespace + "_watcher-" + runID }

// VolumeDir is the mount point of a volume in its helper containers.
const VolumeDir = "/evalbox"
