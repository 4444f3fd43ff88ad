// Package images knows which images programs may run in.
//
// A [Catalog] names images. [Resolve] turns a name, or any reference that the engine knows,
// into one immutable image ID; it never pulls. [List] says which images of a catalog the
// engine has.
//
// The tag of an image contains a hash of its recipe, see [Entry.Tag]: a changed recipe is
// another image, and an existing tag needs no work.
//
// The packages below do the rest. Only build runs programs of an image: the commands of a
// Dockerfile.
//
//   - lock records the image of each name, compares, inspects;
//   - packages lists the installed software of an image;
//   - build makes the images of a catalog, and pull pulls an image by its digest;
//   - archive moves a locked image between engines;
//   - prune makes room;
//   - store reads the images of a Docker engine for all of them.
//
// Errors name the image and the step. Errors that a user can fix have a method
// Hint() string.
package images

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/evalbox/evalbox/internal/strict"
)

// schema is the version of the catalog format that this package reads.
const schema = "evalbox/images/v1"

// BuilderVersion is part of every recipe. Raise it when the code that makes images turns the
// same catalog into other images.
const BuilderVersion = 2

// The tags of the images of catalogs begin with Repository. Those of the bases of bootstraps,
// while the images are being made, begin with BaseRepository: an unfinished base must not
// look like an image.
const (
	Repository     = "evalbox/"
	BaseRepository = "evalbox-base/"
)

// Labels of every image that is made from a catalog.
const (
	// LabelImage holds the name of the image in its catalog.
	LabelImage = "org.evalbox.image"
	// LabelRecipe holds the result of [Entry.Recipe].
	LabelRecipe = "org.evalbox.recipe"
	// LabelOwn says, for own images only, what the image was built from.
	LabelOwn = "org.evalbox.own"
)

// A Catalog names the images that programs may run in. It comes from [LoadCatalog], is not
// changed afterwards and is safe for concurrent use. The zero Catalog names nothing; engine
// references still resolve with it.
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
	// Own says that the entry is of no catalog: its image is one of the user's own, see
	// [OwnTag].
	Own bool `yaml:"-"`
	// Description is one line for a reader.
	Description string `yaml:"description"`
	// Base is the base of the image.
	Base Base `yaml:"base"`
	// Dockerfile is the name of the Dockerfile that turns the base into the image.
	Dockerfile string `yaml:"dockerfile"`
	// DockerfileSHA256 is the SHA-256 of that file, 64 lower-case hexadecimal digits.
	DockerfileSHA256 string `yaml:"dockerfile_sha256"`
	// Requirements is the name of the file of Python packages, in pip's format with hashes,
	// that are installed on the base; empty for none.
	Requirements string `yaml:"requirements,omitempty"`
	// RequirementsSHA256 is the SHA-256 of that file.
	RequirementsSHA256 string `yaml:"requirements_sha256,omitempty"`
	// Epoch is the time stamp of the build (SOURCE_DATE_EPOCH): that of the bootstrap, or
	// else that of the catalog. Defaults to the beginning of 1980, the earliest time that
	// every archive format can hold.
	Epoch time.Time `yaml:"epoch,omitempty"`
}

// Base is the base of an image: exactly one field is set.
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
	// Packages are installed with their dependencies, without the recommended packages.
	Packages []string `yaml:"packages" json:"packages"`
	// StandIns are packages that no program needs, but on which others depend: an empty
	// package takes the place of each.
	StandIns []string `yaml:"stand_ins" json:"stand_ins"`
	// Exclude are patterns of paths that are not unpacked (dpkg path-exclude). In an own image with Debian
	// packages, only the patterns of documentation count.
	Exclude []string `yaml:"exclude" json:"exclude"`
}

// document is the wire form of a catalog.
type document struct {
	Schema  string           `yaml:"schema"`
	Default string           `yaml:"default"`
	Images  map[string]Entry `yaml:"images"`
}

// LoadCatalog reads a catalog. Source is the name of the file in messages. The format is
// strict: an unknown key, a key given twice, an alias and a second document are errors. The
// error joins every problem that was found.
func LoadCatalog(data []byte, source string) (Catalog, error) {
	var doc document
	if problems := strict.Decode(data, &doc, strict.Options{Schema: schema, Lenient: true}); len(problems) > 0 {
		return Catalog{}, strict.Join(source, problems)
	}
	if err := validate(source, doc); err != nil {
		return Catalog{}, err
	}
	c := Catalog{Source: source, Default: doc.Default, entries: map[string]Entry{}}
	for name, e := range doc.Images {
		e.Name = name
		switch {
		case e.Base.Bootstrap != nil:
			e.Epoch = e.Base.Bootstrap.Epoch
		case e.Epoch.IsZero():
			e.Epoch = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)
		}
		c.entries[name] = e
	}
	return c, nil
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

// Recipe returns the SHA-256 over everything that the image is made of: its base, its
// Dockerfile, its requirements, its time stamp and the version of the code that makes it.
// The description is not part of it.
func (e Entry) Recipe() string {
	own := ""
	if e.Own {
		own = e.Name
	}
	data, err := json.Marshal(struct {
		Builder            int       `json:"builder"`
		Own                string    `json:"own,omitempty"`
		Base               Base      `json:"base"`
		DockerfileSHA256   string    `json:"dockerfile_sha256"`
		RequirementsSHA256 string    `json:"requirements_sha256"`
		Epoch              time.Time `json:"epoch"`
	}{BuilderVersion, own, e.Base, e.DockerfileSHA256, e.RequirementsSHA256, e.Epoch.UTC()})
	if err != nil { // strings, numbers and a valid time always marshal
		panic(fmt.Sprintf("marshalling the recipe of image %s: %v", e.Name, err))
	}
	return digest.FromBytes(data).Encoded()
}

// Tag returns the local name of the image in the engine: evalbox/NAME:RECIPE, with the
// first 12 digits of the recipe; for an own image, [OwnTag].
func (e Entry) Tag() string {
	if e.Own {
		return OwnTag(e.Name)
	}
	return Repository + e.Name + ":" + e.Recipe()[:12]
}

// ownSuffix ends the tags of own images. A recipe never looks like this.
const ownSuffix = ":own"

// OwnTag is the name in the engine of an image that a user built under a name of the user's
// choice: evalbox/NAME:own. It is not a name of a registry, so that a build never hides an image
// that was pulled.
func OwnTag(name string) string { return Repository + name + ownSuffix }

// OwnName returns the name of an own image by its tag; ok is false for another tag.
func OwnName(tag string) (name string, ok bool) {
	name, ok = strings.CutPrefix(strings.TrimSuffix(tag, ownSuffix), Repository)
	return name, ok && IsName(name) && tag == OwnTag(name)
}

// BaseTag is the local name of the base of a bootstrap while the image is being made.
func (e Entry) BaseTag() string { return BaseRepository + e.Name + ":" + e.Recipe()[:12] }
