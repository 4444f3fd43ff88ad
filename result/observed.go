package result

// Observed is what a program tried although its sandbox did not let it. A program that
// tries, and goes on when it fails, looks like any other in the rest of a [Result].
type Observed struct {
	// NetworkAttempts is how often the program sent or connected to an address to which
	// no route led, as the kernel counted it: TCP and UDP, IPv4 and IPv6, questions to
	// name servers included. Multicast counts in any case. What it does on the
	// container's own addresses does not count, nor does IPv4 that it binds to the
	// loopback device (SO_BINDTODEVICE, IP_PKTINFO), which has a route: into the void.
	// With a network level these are attempts beside the proxy. It is nil when nobody
	// asked for it, and when it could not be counted.
	NetworkAttempts *int64 `json:"network_attempts"`
	// NetworkWhy is why attempts could not be counted; empty if they were, and if nobody
	// asked.
	NetworkWhy string `json:"network_why"`
	// Watched are the paths inside the container that were watched, sorted. Folders end
	// with a slash.
	Watched []string `json:"watched"`
	// Opened are those of them, and names in watched folders, that the program opened,
	// sorted. A folder, which ends with a slash, was opened to list it; a file, to read
	// it. Looking at a name without opening it (stat) does not count.
	Opened []string `json:"opened"`
	// WatchWhy is why paths could not be watched, or not to the end: Opened may then miss
	// some. It is empty otherwise.
	WatchWhy string `json:"watch_why"`
}
