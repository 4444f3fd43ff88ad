package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// builderVersion is part of every recipe. Raise it when the code that makes
// images makes something else out of the same catalog.
const builderVersion = 2

// Where the images of catalogs are tagged, and what they stand on while they are
// being made: apart, so that nobody takes one for the other.
const (
	repository     = "evalbox/"
	baseRepository = "evalbox-base/"
)

// Labels of every image that [Ensure] makes.
const (
	// LabelImage holds the name of the image in its catalog.
	LabelImage = "org.evalbox.image"
	// LabelRecipe holds the result of [Entry.Recipe].
	LabelRecipe = "org.evalbox.recipe"
)

// Recipe returns the SHA-256 over everything that decides what the image is: its
// base, its Dockerfile, its requirements, its time stamp and the version of the
// code that makes it. The description is not part of it.
func (e Entry) Recipe() string {
	data, err := json.Marshal(struct {
		Builder            int       `json:"builder"`
		Base               Base      `json:"base"`
		DockerfileSHA256   string    `json:"dockerfile_sha256"`
		RequirementsSHA256 string    `json:"requirements_sha256"`
		Epoch              time.Time `json:"epoch"`
	}{builderVersion, e.Base, e.DockerfileSHA256, e.RequirementsSHA256, e.epoch().UTC()})
	if err != nil { // strings, numbers and a valid time always marshal
		panic(fmt.Sprintf("marshalling the recipe of image %s: %v", e.Name, err))
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Tag returns the local name of the image in the engine: evalbox/NAME:RECIPE,
// with the first 12 digits of the recipe.
func (e Entry) Tag() string {
	return repository + e.Name + ":" + e.Recipe()[:12]
}

// baseTag is the local name of the base while the image is being made.
func (e Entry) baseTag() string { return baseRepository + e.Name + ":" + e.Recipe()[:12] }
