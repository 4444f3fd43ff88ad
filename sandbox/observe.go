package sandbox

// Observe asks for what a program tries although its sandbox does not let it. What was
// seen is in the result, see [github.com/evalbox/evalbox/result.Observed]; it changes
// neither the status nor the fault of a run.
//
// An observed program is started by a shell of the image (/bin/sh), which holds it back
// until the observation has begun. Observing works where the processes of the engine can
// be seen and its files are shared (Linux, the engine on the same machine, a runtime
// that uses the machine's own kernel). Where it does not, the result says why.
type Observe struct {
	// Network counts what the program sends, or connects, to addresses to which no
	// route leads: all but those of the container itself, unless the program binds a
	// socket of IPv4 to the loopback device, which nothing leaves. A look-up of a name that is
	// not in /etc/hosts counts, once for each question that the resolver sends. The
	// container then has IPv6 on its loopback, its own name in /etc/hosts, and a name
	// server at an address for documentation (RFC 5737).
	Network bool
	// Decoys are absolute paths inside the container, or such as begin with "~/" for
	// the HOME of the program. A readable decoy lies there, and whether it was opened
	// is told. One that ends with a slash, or whose name is usually that of a folder
	// (.ssh), is a folder with the names of keys in it; any other is a file. A decoy in
	// a mount, a tree or the input hides what is there as one of the Masks of the
	// request does, by all its names (further names of a file are watched with Masks);
	// one that stands for nothing there is left out. Those below /root, which no other
	// user may enter, lie in a /root of their own that everybody may.
	Decoys []string
	// Masks watches the masks of the request as well: the caller's, and those that hide
	// sockets and FIFOs of the host. A folder of a tree then looks no longer empty: the
	// names of what is hidden are there (at most 1000 in a run, in folders at most 8
	// deep), with decoys in place of the files, so that opening one is seen.
	Masks bool
	// Required makes a run fail before its program starts when something that was asked
	// for here cannot be observed; see [ErrUnobserved].
	Required bool
}

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
	// inner says that it lies in another watched path, which stands for it in results.
	inner bool
}

// text is how a result names the path.
func (w Watch) text() string {
	if w.Folder {
		return w.Target + "/"
	}
	return w.Target
}

const (
	// HoldDir is where the container of an observed run finds what holds its program
	// back.
	HoldDir = "/run/evalbox-hold"
	// RoleHold is the mount of [HoldDir], and RoleWatch begins the roles of watched
	// paths, which end in a dash and their number.
	RoleHold  = "hold"
	RoleWatch = "watch"
	// RoleWatchRoot is the folder that decoys below /root lie in.
	RoleWatchRoot = RoleWatch + "-root"

	// maxWatched bounds the watched paths: each is a mount.
	maxWatched = 256
	// deadNameServer is nobody's (RFC 5737): look-ups go where no route leads, also
	// where the engine's machine asks a name server on its loopback.
	deadNameServer = "192.0.2.53"
	// hostName is the name of every container.
	hostName = "sandbox"
)
