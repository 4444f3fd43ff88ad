package spec

// Ulimit is one resource limit, as in setrlimit(2): nofile, nproc, fsize, ….
type Ulimit struct {
	Name string `json:"name"`
	Soft int64  `json:"soft"`
	Hard int64  `json:"hard"`
}

// DedicatedUser is the numeric user that programs of a root caller run as. Such a high
// number is usually not an account of the host, whereas uid 1000 is a real person on many
// machines.
const DedicatedUser = "64646:64646"

// DedicatedID is its user ID and group ID.
const DedicatedID = 64646
