package spec

import (
	_ "embed" // for the profile
)

// The profiles are files because github.com/moby/profiles/seccomp only builds on Linux, and
// a controller on another system drives the same engines. A test compares them with that
// module.
//
//go:generate go test . -run TestSeccomp -update

// SeccompProfile is moby's current allow-list, as that module builds it.
//
//go:embed seccomp.json
var SeccompProfile string

// SeccompMonitor is [SeccompProfile] without the rule of CAP_DAC_READ_SEARCH, for a
// container that has this capability to read every file: the rule would also permit
// opening files of the host by handle.
//
//go:embed seccomp_monitor.json
var SeccompMonitor string

// The origin of the profile, and the hash of its text. A test compares both.
const (
	seccompName = "moby/profiles v0.2.3"
	seccompHash = "afb4934b023cfceaaec1a9d752ca3f801aaa96eb2e59abe6e7ea16976948e080"
)

// DefaultSeccomp names the profile of every class.
func DefaultSeccomp() Seccomp { return Seccomp{Name: seccompName, SHA256: seccompHash} }

// BoundedLog is the engine's own copy of the output, limited to 100 MiB. It is all that
// remains of the output if the controller dies.
func BoundedLog() Log {
	return Log{Driver: "local", Options: map[string]string{"max-size": "20m", "max-file": "5", "compress": "false"}}
}
