package main

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/contract"
)

// maxRegistry bounds a registry of tools.
const maxRegistry = 4 << 20

// gateTools reads the registry that the commands of a gate are checked against, and its
// SHA-256.
func gateTools(file string) (contract.Registry, string, error) {
	text, err := fsx.Read(file, maxRegistry)
	if err != nil {
		return contract.Registry{}, "", &fileError{fileTools, file, err}
	}
	registry, err := contract.ParseRegistry(text, file)
	if err != nil {
		return contract.Registry{}, "", &hintedError{err, fileHints[fileTools]}
	}
	sum := sha256.Sum256(text)
	return registry, hex.EncodeToString(sum[:]), nil
}
