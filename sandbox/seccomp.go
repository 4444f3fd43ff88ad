package sandbox

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"sync"
)

// seccompJSON is moby's current allow-list, as github.com/moby/profiles/seccomp
// builds it. It is a file because that package only builds on Linux, and a
// controller on another system drives the same engines; a test compares the two,
// and `go test ./sandbox -run TestSeccomp -update` writes it anew.
//
//go:embed seccomp.json
var seccompJSON string

// seccompName says where the profile comes from.
const seccompName = "moby/profiles v0.2.3"

// seccompSum is the SHA-256 of the profile's text.
var seccompSum = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(seccompJSON))
	return hex.EncodeToString(sum[:])
})

// boundedLog is the engine's own copy of the output, at most 100 MiB of it.
func boundedLog() Log {
	return Log{Driver: "local", Options: map[string]string{"max-size": "20m", "max-file": "5", "compress": "false"}}
}
