package evaluate

import (
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/stop"
)

// comparing are the stop rules of the scripts that compare a run with others.
func (h *Harness) comparing() (rules []stop.Rule) {
	for _, text := range h.opts.Request.StopWhen {
		if rule, err := stop.Parse(text); err == nil && rule.NeedsPeers() {
			rules = append(rules, rule)
		}
	}
	return rules
}

// checkCache refuses a cache for results that depend on other runs.
func (h *Harness) checkCache() error {
	if h.opts.Cache == "" || len(h.comparing()) == 0 {
		return nil
	}
	return &policy.FieldError{Field: "cache", Value: h.opts.Cache, Rule: "cannot be used with a stop rule that compares the runs of a batch: the same script would have another result in another batch",
		Hint: "leave --cache or the rule out"}
}

// peersOf returns the runs of a batch that its stop rules compare others with: those of an earlier,
// interrupted batch, as far as their records are still there.
func (h *Harness) peersOf(known []*Result) *stop.Peers {
	peers := &stop.Peers{}
	rules := h.comparing()
	if len(rules) == 0 {
		return peers
	}
	for _, r := range known {
		if r == nil || r.Run == nil || r.Run.Status != result.StatusExited {
			continue
		}
		watch := stop.New(rules, peers)
		for p, err := range metrics.Read(h.box.Store().RecordDir(r.Run.ID)) {
			if err != nil {
				break
			}
			line := result.MetricLine{Step: p.Step, Values: map[string]float64{}}
			for name, value := range p.Values {
				line.Values[name] = float64(value)
			}
			watch.Print(p.Seconds, line)
		}
		watch.Finished()
	}
	return peers
}
