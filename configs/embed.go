// Package configs holds the shipped defaults as files, embedded. It parses
// nothing: the package that owns a format reads it.
package configs

import (
	"embed"
	"io/fs"
	"slices"
)

//go:embed images.yaml
var images []byte

//go:embed sandbox.yaml
var settings []byte

//go:embed profiles.yaml
var profiles []byte

//go:embed tools.yaml
var tools []byte

//go:embed registries.yaml
var registries []byte

//go:embed layouts.yaml
var layouts []byte

//go:embed adapters/*.yaml
var adapters embed.FS

// Images returns the shipped image catalog (images.yaml). The caller owns the
// slice.
func Images() []byte { return slices.Clone(images) }

// Settings returns the shipped settings of the command line (sandbox.yaml). The
// caller owns the slice.
func Settings() []byte { return slices.Clone(settings) }

// Profiles returns the shipped limit profiles of contracts (profiles.yaml). The caller
// owns the slice.
func Profiles() []byte { return slices.Clone(profiles) }

// Tools returns the shipped tool registry (tools.yaml). The caller owns the slice.
func Tools() []byte { return slices.Clone(tools) }

// Registries returns the shipped list of package registries (registries.yaml). The
// caller owns the slice.
func Registries() []byte { return slices.Clone(registries) }

// Layouts returns the shipped layouts of directories (layouts.yaml). The caller owns the
// slice.
func Layouts() []byte { return slices.Clone(layouts) }

// Adapters returns the shipped adapters of tools, a file each.
func Adapters() fs.FS {
	files, err := fs.Sub(adapters, "adapters")
	if err != nil {
		panic("configs: " + err.Error()) // the name is a valid one
	}
	return files
}
