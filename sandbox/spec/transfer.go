package spec

import "github.com/evalbox/evalbox/internal/owner"

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

// Parts of a run whose files are copied, and what no run owns.
const (
	// PartDepot is the volume that holds the files.
	PartDepot = "depot"
	// PartCourier is the container, never started, through which the depot is
	// filled and read.
	PartCourier = "courier"
	// PartWatcher is the container that looks at the depot's disk.
	PartWatcher = "watcher"
	// PartInit is the volume that holds the init of all containers, and the container,
	// never started, through which it is filled.
	PartInit = "init"
)

// DepotName is the volume of a run's depot. No run's own container can have the names of
// its parts: those begin with "evalbox-". Volumes have names of their own.
func DepotName(runID string) string { return namespace + "-" + runID }

// CourierName is the container that fills and reads it.
func CourierName(runID string) string { return namespace + "_courier-" + runID }

// WatcherName is the container that looks at its disk.
func WatcherName(runID string) string { return namespace + "_watcher-" + runID }

// DepotDir is where the depot's parts have it.
const DepotDir = "/evalbox"
