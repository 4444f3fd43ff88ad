package evidence

// ObservationsV1 names the wire form of [Observations].
const ObservationsV1 = "evalbox/observations/v1"

// Observations is what the gates tried that the boundary or the mode forbids (RT-08).
// Nothing of it succeeded: the container prevents it. That it was tried blocks.
type Observations struct {
	Schema   string        `json:"schema"`
	Commands []Observation `json:"commands"`
}

// Observation is one gate of one set.
type Observation struct {
	Index int `json:"index"`
	// Set is where the gate ran: empty for the workspace, "baseline", or "repeat-2" and
	// so on.
	Set string `json:"set"`
	// Complete is false if the list of what the gate changed in its copy was cut: Changed
	// and Evidence may then miss some.
	Complete bool `json:"complete"`
	// Network is "none", or the level that was enforced.
	Network string `json:"network"`
	// NetworkAttempts counts attempts to reach something without a network. Counted says
	// how they were found: "kernel" by the counters of the container's network, which no
	// program can avoid; "output" by error messages only.
	NetworkAttempts int64  `json:"network_attempts"`
	Counted         string `json:"counted"`
	// Refused counts requests that the proxy of a network level refused.
	Refused int64 `json:"refused"`
	// Touched are protected paths and decoys that were opened, and paths outside of the
	// boundary that the output says were refused; Watched says whether opening was watched.
	Touched []Touch `json:"touched"`
	Watched bool    `json:"watched"`
	// Changed are read-only paths that the gate changed in its copy, and Evidence paths
	// of ours that it wrote to.
	Changed  []string `json:"changed"`
	Evidence []string `json:"evidence"`
}

// Touch is a path that a gate should have left alone.
type Touch struct {
	Path string `json:"path"`
	// How is "opened" (seen by the watch) or "refused" (told by the output).
	How string `json:"how"`
	// Line is the line of the output that tells it, normalized; empty for "opened".
	Line string `json:"line"`
}

// NormalizationV1 names the wire form of [Normalization].
const NormalizationV1 = "evalbox/normalization/v1"

// Normalization tells what node 3 did to the logs.
type Normalization struct {
	Schema string `json:"schema"`
	// Rules are all rules in the order of their application, with how often each was.
	Rules []RuleCount `json:"rules"`
	// Suspects are places of the normalized log that still look as if they change from
	// run to run, the first ones; SuspectsTotal counts all.
	Suspects      []Suspect `json:"suspects"`
	SuspectsTotal int       `json:"suspects_total"`
}

// RuleCount is one rule.
type RuleCount struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// Suspect is one place in the normalized log.
type Suspect struct {
	// Detector names what it looks like, Line counts from 1, Text is what was found.
	Detector string `json:"detector"`
	Line     int    `json:"line"`
	Text     string `json:"text"`
}
