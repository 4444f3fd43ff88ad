package sandbox

// Observe asks for what a program tries although its sandbox does not let it. What was
// seen is in the result, see [github.com/evalbox/evalbox/result.Observed]; it changes
// neither the status nor the fault of a run.
//
// The container's init holds an observed program back until the observation has begun.
// Observing works where the processes of the engine can
// be seen and its files are shared (Linux, the engine on the same machine, a runtime
// that uses the machine's own kernel). Where it does not, the result says why.
type Observe struct {
	// Network counts what the program sends, or connects, to addresses to which no
	// route leads: all but those of the container itself, unless the program binds a
	// socket of IPv4 to the loopback device, which nothing leaves. A look-up of a name that is
	// not in /etc/hosts counts, once for each question that the resolver sends.
	Network bool `json:"network,omitempty"`
	// Decoys are absolute paths inside the container, or such as begin with "~/" for
	// the HOME of the program. A readable decoy lies there, and whether it was opened
	// is told. One that ends with a slash, or whose name is usually that of a folder
	// (.ssh), is a folder with the names of keys in it; any other is a file. A decoy in
	// a mount, a tree or the input hides what is there as one of the Masks of the
	// request does, by all its names (further names of a file are watched with Masks);
	// one that stands for nothing there is left out. Those below /root, which no other
	// user may enter, lie in a /root of their own that everybody may.
	Decoys []string `json:"decoys,omitempty"`
	// Masks watches the masks of the request as well: the caller's, and those that hide
	// sockets and FIFOs of the host. A folder of a tree then looks no longer empty: the
	// names of what is hidden are there (at most 1000 in a run, in folders at most 8
	// deep), with decoys in place of the files, so that opening one is seen.
	Masks bool `json:"masks,omitempty"`
	// Required makes a run fail before its program starts when something that was asked
	// for here cannot be observed; see [ErrUnobserved].
	Required bool `json:"required,omitempty"`
}

// maxWatched bounds the watched paths: each is a mount.
const maxWatched = 256
