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
	// PartDepot is the volume that holds the files.
	PartDepot = "depot"
	// PartCourier is the helper container, never started, through which the depot is
	// filled and read.
	PartCourier = "courier"
	// PartWatcher is the disk monitor: the container that measures the depot's disk
	// usage.
	PartWatcher = "watcher"
	// PartInit is the volume that holds the init of all containers. It is also the helper
	// container, never started, through which that volume is filled.
	PartInit = "init"
)

// DepotName is the name of a run's depot. The depot's helper containers cannot collide
// with the container of a run, whose name begins with "evalbox-". Volumes have a separate
// name space.
func DepotName(runID string) string { return namespace + "-" + runID }

// CourierName is the name of the helper container that fills and reads the depot.
func CourierName(runID string) string { return namespace + "_courier-" + runID }

// WatcherName is the name of the depot's disk monitor.
func WatcherName(runID string) string { return namespace + "_watcher-" + runID }

// DepotDir is the mount point of the depot in its helper containers.
const DepotDir = "/evalbox"
