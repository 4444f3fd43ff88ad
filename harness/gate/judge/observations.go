package judge

import (
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
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
	sets := map[string]bool{}
	if !j.countless() {
		for _, set := range evidence.Sets(m) {
			sets[set] = true
		}
	}
	idle := map[place]bool{} // what never started tried nothing
	for _, r := range j.in.Tests.Commands {
		idle[place{"", r.Index}] = !r.Started
		idle[place{evidence.BaselineSet, r.Index}] = r.Baseline != nil && !r.Baseline.Started
	}
	seen := map[place]bool{}
	for _, o := range j.in.Observations.Commands {
		at := place{o.Set, o.Index}
		switch {
		case !declared[o.Index]:
			j.against(evidence.ReasonUndeclared, o.Index, evidence.ObservationsFile, "%s has the gate %d, which nobody declared.", evidence.ObservationsFile, o.Index)
		case !sets[o.Set] && !j.countless():
			j.against(evidence.ReasonUndeclared, o.Index, evidence.ObservationsFile, "%s has gate %d in %q, which nobody asked for.", evidence.ObservationsFile, o.Index, shortened(o.Set))
		case seen[at]:
			j.against(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, "%s has %s more than once.", evidence.ObservationsFile, at)
		}
		seen[at] = true
		j.network(o)
		j.boundary(o)
		if !idle[at] {
			j.observed(o)
		}
	}
	for _, r := range j.in.Tests.Commands {
		j.seen(seen, place{"", r.Index})
		if m.Baseline != "" && r.Baseline != nil {
			j.seen(seen, place{evidence.BaselineSet, r.Index})
		}
	}
	if !j.countless() {
		for k := 2; k <= m.Mode.Repeats; k++ {
			for _, g := range m.Gates {
				j.seen(seen, place{evidence.RepeatSet(k), g.Index})
			}
		}
	}
}

// place is one gate of one set.
type place struct {
	set   string
	index int
}

func (p place) String() string {
	switch p.set {
	case "":
		return fmt.Sprintf("gate %d", p.index)
	case evidence.BaselineSet:
		return fmt.Sprintf("gate %d on the baseline", p.index)
	}
	return fmt.Sprintf("gate %d in %s", p.index, shortened(p.set))
}

// first is the place at the beginning of a sentence.
func (p place) first() string { return "G" + strings.TrimPrefix(p.String(), "g") }

// seen is against a gate that ran and of which nobody says what it tried.
func (j *judgement) seen(seen map[place]bool, at place) {
	if !seen[at] {
		j.against(evidence.ReasonIncomplete, at.index, evidence.ObservationsFile, "%s has nothing on %s, which ran.", evidence.ObservationsFile, at)
	}
}

// offline says that the gates may reach nothing.
func (j *judgement) offline() bool { return j.in.Manifest.Mode.Offline || j.in.Manifest.Egress == nil }

func (j *judgement) network(o evidence.Observation) {
	at := place{o.Set, o.Index}
	if o.NetworkAttempts < 0 || o.Refused < 0 {
		j.against(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, "%s counts fewer than no attempts of %s.", evidence.ObservationsFile, at)
	}
	if !j.offline() {
		return
	}
	if o.Network != "none" {
		j.against(evidence.ReasonNetwork, o.Index, "network", "%s was to be offline and ran with the network %q.", at.first(), o.Network)
	}
	if o.NetworkAttempts > 0 {
		j.against(evidence.ReasonNetwork, o.Index, "network", "%s tried to reach the network %s, and is to be offline.", at.first(), text.Count(o.NetworkAttempts, "time"))
	}
	if o.Refused > 0 {
		j.against(evidence.ReasonNetwork, o.Index, "network", "%s made %s that the proxy refused, and is to be offline.", at.first(), text.Count(o.Refused, "request"))
	}
}

// observed looks at whether attempts could be seen at all. Without a network level, error
// messages alone are not enough: a program can keep them to itself.
func (j *judgement) observed(o evidence.Observation) {
	at, mode := place{o.Set, o.Index}, j.in.Manifest.Mode
	accepted := mode.AllowUnobserved && !mode.Strict
	why := "the wish does not accept that (allow_unobserved)"
	if mode.Strict {
		why = "strict mode demands it"
	}
	against := func(format string, args ...any) {
		j.against(evidence.ReasonIncomplete, o.Index, evidence.ObservationsFile, format, args...)
	}
	if !o.Complete {
		against("The list of what %s changed is cut, so that it may have changed what it must not.", at)
	}
	if j.offline() {
		switch {
		case trust(o.Counted) == 0:
			against("Nobody counted whether %s tried to reach the network.", at)
		case o.Counted != countedByKernel && !accepted:
			against("Whether %s tried to reach the network was only looked for in its output, not counted by the kernel; %s.", at, why)
		}
	}
	if !o.Watched && !accepted && (mode.Strict || j.offline()) {
		against("Nobody watched what %s opened; %s.", at, why)
	}
}

func (j *judgement) boundary(o evidence.Observation) {
	at := place{o.Set, o.Index}
	for _, touch := range o.Touched {
		how := "opened"
		if touch.How != "opened" {
			how = "tried to reach"
		}
		line := ""
		if touch.Line != "" {
			line = ": " + shortened(touch.Line)
		}
		j.against(evidence.ReasonOutsideBoundary, o.Index, touch.Path, "%s %s %s, which is outside of what it may touch%s.", at.first(), how, touch.Path, line)
	}
	for _, path := range o.Changed {
		j.against(evidence.ReasonOutsideBoundary, o.Index, path, "%s changed %s, which it may only read.", at.first(), path)
	}
	for _, path := range o.Evidence {
		j.against(evidence.ReasonOutsideBoundary, o.Index, path, "%s wrote to %s, where the evidence lies.", at.first(), path)
	}
}
