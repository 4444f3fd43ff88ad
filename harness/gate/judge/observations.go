package judge

import (
	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// observations looks at what the gates tried that they may not (RT-08).
func (j *judgement) observations() {
	if j.in.Observations.Schema != evidence.ObservationsV1 {
		return // told with the files
	}
	m := j.in.Manifest
	if m.Mode.Offline && m.Egress != nil {
		j.against(evidence.ReasonNetwork, 0, evidence.RunManifestFile, "The run is to be offline, and its manifest opens the network level %q.", m.Egress.Level)
	}
	declared := map[int]bool{}
	for _, g := range m.Gates {
		declared[g.Index] = true
	}
	seen := map[int]bool{}
	for _, o := range j.in.Observations.Commands {
		switch {
		case !declared[o.Index]:
			j.against(evidence.ReasonUndeclared, o.Index, evidence.ObservationsFile, "%s has the gate %d, which nobody declared.", evidence.ObservationsFile, o.Index)
		case seen[o.Index]:
			j.against(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, "%s has the gate %d more than once.", evidence.ObservationsFile, o.Index)
		}
		seen[o.Index] = true
		j.network(o)
		j.boundary(o)
	}
	for _, r := range j.in.Tests.Commands {
		if !seen[r.Index] {
			j.against(evidence.ReasonIncomplete, r.Index, evidence.ObservationsFile, "%s has nothing on gate %d, which ran.", evidence.ObservationsFile, r.Index)
		}
	}
}

// offline says that the gates may reach nothing.
func (j *judgement) offline() bool { return j.in.Manifest.Mode.Offline || j.in.Manifest.Egress == nil }

func (j *judgement) network(o evidence.Observation) {
	if o.NetworkAttempts < 0 || o.Refused < 0 {
		j.against(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, "%s counts fewer than no attempts of gate %d.", evidence.ObservationsFile, o.Index)
	}
	if !j.offline() {
		return
	}
	if o.Network != "none" {
		j.against(evidence.ReasonNetwork, o.Index, "network", "Gate %d was to be offline and ran with the network %q.", o.Index, o.Network)
	}
	if o.NetworkAttempts > 0 {
		j.against(evidence.ReasonNetwork, o.Index, "network", "Gate %d tried to reach the network %d times, and is to be offline.", o.Index, o.NetworkAttempts)
	}
	if o.Refused > 0 {
		j.against(evidence.ReasonNetwork, o.Index, "network", "Gate %d made %d requests that were refused, and is to be offline.", o.Index, o.Refused)
	}
	switch {
	case trust(o.Counted) == 0:
		j.against(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, "Nobody counted whether gate %d tried to reach the network.", o.Index)
	case j.in.Manifest.Mode.Strict && o.Counted != countedByKernel:
		j.against(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile,
			"Whether gate %d tried to reach the network was only looked for in its output; strict mode demands the kernel's counters.", o.Index)
	}
}

func (j *judgement) boundary(o evidence.Observation) {
	for _, touch := range o.Touched {
		how := "opened"
		if touch.How != "opened" {
			how = "tried to reach"
		}
		line := ""
		if touch.Line != "" {
			line = ": " + shortened(touch.Line)
		}
		j.against(evidence.ReasonOutsideBoundary, o.Index, touch.Path, "Gate %d %s %s, which is outside of what it may touch%s.", o.Index, how, touch.Path, line)
	}
	for _, path := range o.Changed {
		j.against(evidence.ReasonOutsideBoundary, o.Index, path, "Gate %d changed %s, which it may only read.", o.Index, path)
	}
	for _, path := range o.Evidence {
		j.against(evidence.ReasonOutsideBoundary, o.Index, path, "Gate %d wrote to %s, where the evidence lies.", o.Index, path)
	}
	if j.in.Manifest.Mode.Strict && !o.Watched {
		j.against(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, "Nobody watched what gate %d opened; strict mode demands it.", o.Index)
	}
}
