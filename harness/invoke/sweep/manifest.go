package sweep

import (
	"fmt"
	"strings"
)

// The families of manifests that a sweep may have (MI-11).
const (
	// FamilyOrchestrator is a manifest of this package.
	FamilyOrchestrator = "clarity_sweep_orchestrator_v1"
	// FamilyRichAggregate is a manifest of aggregated results, of other tools.
	FamilyRichAggregate = "clarity_rich_aggregate_v1"
	// FamilyUnknown is a manifest of which nothing is known.
	FamilyUnknown = "unknown"
)

const familyKey = "manifest_schema_family"

// Manifest is the text of the manifest of a sweep (MI-11). hashes has the SHA-256 of what
// each run wrote as its manifest, in the order of the runs; "" stands for a run that
// failed, and null is written. Keys are sorted, a level is two spaces, and there is no
// newline at the end.
func (p Plan) Manifest(hashes []string) ([]byte, error) {
	if len(hashes) != p.Len() {
		return nil, fmt.Errorf("sweep: %d runs but %d hashes", p.Len(), len(hashes))
	}
	runs := make([]any, p.Len())
	for i, point := range p.points {
		var hash any
		if hashes[i] != "" {
			hash = hashes[i]
		}
		runs[i] = map[string]any{"axis_values": point.Values, "seed": point.Seed, "manifest_hash": hash}
	}
	return indentedJSON(map[string]any{"axes": p.axes(), "seeds": p.seeds(), "runs": runs, familyKey: FamilyOrchestrator})
}

// ManifestFamily tells which family the manifest of a sweep is of. explicit is what it
// says itself, without space around it; empty if it says nothing. classified is the
// same, and for a manifest that says nothing what its shape tells: runs and axes are
// those of [FamilyOrchestrator], a list of results is that of [FamilyRichAggregate].
func ManifestFamily(manifest map[string]any) (explicit, classified string) {
	if text, ok := manifest[familyKey].(string); ok {
		explicit = strings.TrimSpace(text)
	}
	_, runs := manifest["runs"]
	_, axes := manifest["axes"]
	_, results := manifest["results"].([]any)
	switch {
	case explicit != "":
		return explicit, explicit
	case runs && axes:
		return "", FamilyOrchestrator
	case results:
		return "", FamilyRichAggregate
	}
	return "", FamilyUnknown
}
