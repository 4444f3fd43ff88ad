package evidence

// FindingsFile has the findings of other nodes than the judge.
const FindingsFile = Dir + "/findings.json"

// Findings is findings.json.
type Findings struct {
	// Pre is what stopped the run before it began, found by node 1.
	Pre []Finding `json:"pre"`
	// Differences are what was not the same in a repeat.
	Differences []Finding `json:"differences"`
}
