package sandbox

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
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

// noForkName says where the profile of programs comes from that may start none.
const noForkName = seccompName + ", no processes"

// noForkJSON is that profile.
var noForkJSON = sync.OnceValue(func() string {
	text, err := withoutFork(seccompJSON)
	if err != nil {
		panic(fmt.Sprintf("sandbox: the embedded seccomp profile: %v", err)) // a test makes it
	}
	return text
})

// seccompFor names the profile of a class.
func seccompFor(noFork bool) Seccomp {
	if !noFork {
		return Seccomp{Name: seccompName, SHA256: seccompSum()}
	}
	sum := sha256.Sum256([]byte(noForkJSON()))
	return Seccomp{Name: noForkName, SHA256: hex.EncodeToString(sum[:])}
}

// profile is the text of the profile that a class names.
func (s Seccomp) profile() string {
	if s.Name == noForkName {
		return noForkJSON()
	}
	return seccompJSON
}

// boundedLog is the engine's own copy of the output, at most 100 MiB of it.
func boundedLog() Log {
	return Log{Driver: "local", Options: map[string]string{"max-size": "20m", "max-file": "5", "compress": "false"}}
}
