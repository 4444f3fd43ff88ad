package images

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Schema is the version of the catalog format that this package reads.
const Schema = "evalbox/images/v1"

// A Catalog names the images that programs may run in. It comes from
// [LoadCatalog], is not changed afterwards and is safe for concurrent use. The
// zero Catalog names nothing; engine references still resolve with it.
type Catalog struct {
	// Source is where the catalog was read, for messages.
	Source string
	// Default is the name of the image of a run that names none.
	Default string

	entries map[string]Entry
}

// An Entry is one image of a catalog.
type Entry struct {
	// Name is the key of the entry in the catalog.
	Name string `yaml:"-"`
	// Description is one line for a reader.
	Description string `yaml:"description"`
	// Base is what the image stands on.
	Base Base `yaml:"base"`
	// Dockerfile is the name of the Dockerfile that turns the base into the
	// image.
	Dockerfile string `yaml:"dockerfile"`
	// DockerfileSHA256 is the SHA-256 of that file, 64 lower-case hexadecimal
	// digits.
	DockerfileSHA256 string `yaml:"dockerfile_sha256"`
	// Requirements is the name of the file of Python packages, in pip's format
	// with hashes, that are installed on the base; empty for none.
	Requirements string `yaml:"requirements,omitempty"`
	// RequirementsSHA256 is the SHA-256 of that file.
	RequirementsSHA256 string `yaml:"requirements_sha256,omitempty"`
	// Epoch is the time stamp of what is built on a base of a registry
	// (SOURCE_DATE_EPOCH); a bootstrap has its own. Defaults to the beginning of
	// 1980, the earliest that every archive format can hold.
	Epoch time.Time `yaml:"epoch,omitempty"`
}

// epoch is the time stamp of what is built.
func (e Entry) epoch() time.Time {
	switch {
	case e.Base.Bootstrap != nil:
		return e.Base.Bootstrap.Epoch
	case e.Epoch.IsZero():
		return time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return e.Epoch
}

// Base is what an image stands on: exactly one field is set.
type Base struct {
	// Bootstrap makes a root file system from packages.
	Bootstrap *Bootstrap `yaml:"bootstrap,omitempty" json:"bootstrap,omitempty"`
	// Reference is an image of a registry, pinned by digest.
	Reference string `yaml:"reference,omitempty" json:"reference,omitempty"`
}

// String describes the base in a few words.
func (b Base) String() string {
	if b.Bootstrap == nil {
		return b.Reference
	}
	return fmt.Sprintf("debian %s, %d packages", b.Bootstrap.Suite, len(b.Bootstrap.Packages))
}

// Bootstrap is the recipe of a root file system made of Debian packages.
type Bootstrap struct {
	// Suite is the code name of the release, such as bookworm.
	Suite string `yaml:"suite" json:"suite"`
	// Variant is mmdebstrap's choice of packages that are always there.
	Variant string `yaml:"variant" json:"variant"`
	// Epoch is the latest time stamp a file may have.
	Epoch time.Time `yaml:"epoch" json:"epoch"`
	// Packages are installed with what they depend on, without what they
	// recommend.
	Packages []string `yaml:"packages" json:"packages"`
	// StandIns are packages that others depend on and no program needs: an
	// empty package takes the place of each.
	StandIns []string `yaml:"stand_ins" json:"stand_ins"`
	// Exclude are patterns of paths that are not unpacked (dpkg path-exclude).
	Exclude []string `yaml:"exclude" json:"exclude"`
}

// Names returns the names of all images, sorted.
func (c Catalog) Names() []string {
	return slices.Sorted(maps.Keys(c.entries))
}

// Lookup returns the entry with this name; the empty name means the default.
func (c Catalog) Lookup(name string) (Entry, bool) {
	if name == "" {
		name = c.Default
	}
	e, ok := c.entries[name]
	return e, ok
}
