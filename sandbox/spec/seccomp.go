package spec

import (
	"crypto/sha256"
	_ "embed" // for the profile
	"encoding/hex"
	"sync"
)

// SeccompProfile is moby's current allow-list, as github.com/moby/profiles/seccomp builds
// it. It is a file because that package only builds on Linux, and a controller on another
// system drives the same engines. A test compares the two; `go test ./sandbox/spec -run
// TestSeccomp -update` rewrites the file.
//
//go:embed seccomp.json
var SeccompProfile string

// seccompName names the origin of the profile.
const seccompName = "moby/profiles v0.2.3"

// DefaultSeccomp names the profile of every class.
var DefaultSeccomp = sync.OnceValue(func() Seccomp {
	sum := sha256.Sum256([]byte(SeccompProfile))
	return Seccomp{Name: seccompName, SHA256: hex.EncodeToString(sum[:])}
})

// BoundedLog is the engine's own copy of the output, limited to 100 MiB. It is all that
// remains of the output if the controller dies.
func BoundedLog() Log {
	return Log{Driver: "local", Options: map[string]string{"max-size": "20m", "max-file": "5", "compress": "false"}}
}
