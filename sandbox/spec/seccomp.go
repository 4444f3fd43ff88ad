package spec

import (
	"crypto/sha256"
	_ "embed" // for the profile
	"encoding/hex"
	"sync"
)

// SeccompProfile is moby's current allow-list, as github.com/moby/profiles/seccomp
// builds it. It is a file because that package only builds on Linux, and a
// controller on another system drives the same engines; a test compares the two,
// and `go test ./sandbox/spec -run TestSeccomp -update` writes it anew.
//
//go:embed seccomp.json
var SeccompProfile string

// seccompName says where the profile comes from.
const seccompName = "moby/profiles v0.2.3"

// DefaultSeccomp names the profile of every class.
var DefaultSeccomp = sync.OnceValue(func() Seccomp {
	sum := sha256.Sum256([]byte(SeccompProfile))
	return Seccomp{Name: seccompName, SHA256: hex.EncodeToString(sum[:])}
})

// BoundedLog is the engine's own copy of the output, at most 100 MiB of it: what is
// left of the output when the controller dies.
func BoundedLog() Log {
	return Log{Driver: "local", Options: map[string]string{"max-size": "20m", "max-file": "5", "compress": "false"}}
}
