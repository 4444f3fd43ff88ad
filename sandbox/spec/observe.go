package spec

// Observation is what is observed of a run, as it was planned.
type Observation struct {
	// Network says that attempts are counted, and NetworkWhy why they are not although
	// somebody asked.
	Network    bool   `json:"network"`
	NetworkWhy string `json:"network_why"`
	// Watch are the watched paths, by the number in the role of their mounts, and
	// WatchWhy is why there are none although somebody asked.
	Watch    []Watch `json:"watch"`
	WatchWhy string  `json:"watch_why"`
	Required bool    `json:"required"`
}

// Watch is one watched path.
type Watch struct {
	Target string `json:"target"`
	Folder bool   `json:"folder"`
	// Decoy says that something readable lies there, and not something empty.
	Decoy bool `json:"decoy"`
	// Names says that the names of what it hides in its tree are shown there.
	Names bool `json:"names,omitempty"`
	// Inner says that it lies in another watched path, which stands for it in results.
	Inner bool `json:"-"`
}

// Text is how a result names the path.
func (w Watch) Text() string {
	if w.Folder {
		return w.Target + "/"
	}
	return w.Target
}

// Active says that there is something to observe.
func (o *Observation) Active() bool { return o != nil && (o.Network || len(o.Watch) > 0) }

const (
	// HoldDir is where the container of an observed run finds the file that its init
	// opens, so that an observer sees that accesses of the container arrive.
	HoldDir = "/run/evalbox-hold"
	// WitnessFile is that file.
	WitnessFile = "witness"
	// RoleHold is the mount of [HoldDir], and RoleWatch begins the roles of watched
	// paths, which end in a dash and their number.
	RoleHold  = "hold"
	RoleWatch = "watch"
	// RoleWatchRoot is the folder that decoys below /root lie in.
	RoleWatchRoot = RoleWatch + "-root"
)
