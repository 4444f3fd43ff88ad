package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/probe"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// deepRuns bounds the programs of a deep examination that run at one time.
const deepRuns = 2

// deep asks the probes that need nothing but the image, and returns a finding for each group.
func (m Machine) deep(ctx context.Context, info engine.Info, plan spec.Spec) []Finding {
	const check = "probes"
	dir, remove, err := m.Runner.Store().Temp("doctor")
	if err != nil {
		return []Finding{failed(check, err)}
	}
	defer remove() //nolint:errcheck // a later sweep removes the rest
	req := m.Request
	req.Network = "none"
	place := probe.Place{Runner: m.Runner, Request: req, Dir: dir, Machine: probe.Machine{
		Runtime: plan.Class.Runtime, Cgroup: info.Host.CgroupVersion, Root: os.Geteuid() == 0, Copy: plan.Class.Transfer == spec.TransferCopy,
		Rootless: plan.Class.HostUser != "", Pod: m.Cluster != nil,
	}}
	return judgeProbes(askAll(ctx, place))
}

// askAll asks all probes, a few at a time, and returns the verdicts in order.
func askAll(ctx context.Context, place probe.Place) []probe.Verdict {
	var asks []func() []probe.Verdict
	for _, b := range probe.Batches() {
		if b.Group != "numbers" { // an image need not have these libraries
			asks = append(asks, func() []probe.Verdict { return place.Ask(ctx, b) })
		}
	}
	for _, r := range probe.Runs() {
		if r.Deep {
			asks = append(asks, func() []probe.Verdict { return []probe.Verdict{place.Try(ctx, r)} })
		}
	}
	verdicts := make([][]probe.Verdict, len(asks))
	var group errgroup.Group
	group.SetLimit(deepRuns)
	for i, ask := range asks {
		group.Go(func() error {
			verdicts[i] = ask()
			return nil
		})
	}
	_ = group.Wait() // verdicts, not errors
	return slices.Concat(verdicts...)
}

// judgeProbes returns one finding for each group without a difference, and one for each probe
// with one. An honest program that fails is a warning: nothing gets out by it.
func judgeProbes(verdicts []probe.Verdict) (findings []Finding) {
	var groups []string
	well, all := map[string]int{}, map[string]int{}
	for _, v := range verdicts {
		if all[v.Group] == 0 {
			groups = append(groups, v.Group)
		}
		all[v.Group]++
		if len(v.Differs) == 0 {
			well[v.Group]++
		}
	}
	for _, group := range groups {
		if well[group] == all[group] {
			findings = append(findings, Finding{Check: group, Verdict: OK, Seen: fmt.Sprintf("%d of %d probes are as expected", well[group], all[group])})
		}
		for _, v := range verdicts {
			if v.Group != group || len(v.Differs) == 0 {
				continue
			}
			f := Finding{Check: group, Verdict: Fail, Seen: strings.ReplaceAll(v.Name, "_", " ") + ": " + strings.Join(v.Differs, "; "),
				Advice: "do not run what you do not trust here, and report this with the output of sandbox doctor --deep --json"}
			if group == "comfort" {
				f.Verdict, f.Advice = Warn, "programs that need this may fail here"
			}
			findings = append(findings, f)
		}
	}
	return findings
}
