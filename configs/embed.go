// Package configs holds the shipped defaults as files, embedded. It parses
// nothing: the package that owns a format reads it.
package configs

import (
	_ "embed" // for go:embed
	"slices"
)

//go:embed images.yaml
var images []byte

//go:embed sandbox.yaml
var settings []byte

// Images returns the shipped image catalog (images.yaml). The caller owns the
// slice.
func Images() []byte { return slices.Clone(images) }

// Settings returns the shipped settings of the command line (sandbox.yaml). The
// caller owns the slice.
func Settings() []byte { return slices.Clone(settings) }
