package plan

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// observePlan is the plan of an observation.
type observePlan struct {
	job   *spec.Observation
	binds []spec.Bind
	masks []spec.Mask
}

// planObserve plans the observation. Each monitored path gets a mount of its own.
func planObserve(req spec.Request, layout spec.Layout, host spec.Host, masks []spec.Mask) (observePlan, error) {
	plan := observePlan{masks: masks}
	o := req.Observe
	if o == nil || !o.Network && !o.Masks && len(layout.Canaries) == 0 {
		return plan, nil
	}
	plan.job = &spec.Observation{Required: o.Required, Watched: []spec.WatchedPath{}}
	why := cannotObserve(req, host)
	errs := []error{checkCanaries(layout)}
	if o.Network {
		plan.job.NetworkReason = why
		if why == "" && req.Network != "" && req.Network != "none" {
			plan.job.NetworkReason = "the container is attached to the network " + strconv.Quote(req.Network) + ", which routes lead to"
		}
		plan.job.Network = plan.job.NetworkReason == ""
	}
	plan.watch(layout, o.Masks)
	if len(plan.job.Watched) > spec.MaxWatched {
		errs = append(errs, &policy.FieldError{Field: "observe", Value: fmt.Sprint(len(plan.job.Watched)) + " paths",
			Rule: fmt.Sprintf("at most %d can be watched: each is a mount", spec.MaxWatched)})
	}
	if why != "" && len(plan.job.Watched) > 0 {
		plan.job.WatchedReason, plan.job.Watched, plan.binds, plan.masks = why, []spec.WatchedPath{}, nil, masks
	}
	for _, each := range [][2]string{{"network attempts", plan.job.NetworkReason}, {"watched paths", plan.job.WatchedReason}} {
		if o.Required && each[1] != "" {
			errs = append(errs, &policy.FieldError{Field: "observe", Value: each[0], Rule: "are required, and cannot be observed: " + each[1]})
		}
	}
	return plan, errors.Join(errs...)
}

// watch numbers the monitored paths: the canaries, and the masks if they are wanted.
func (p *observePlan) watch(layout spec.Layout, allMasks bool) {
	p.masks = slices.Clone(p.masks)
	add := func(w spec.WatchedPath) string {
		p.job.Watched = append(p.job.Watched, w)
		return spec.NumberedRole(spec.RoleWatch, len(p.job.Watched)-1)
	}
	for i, mask := range p.masks {
		canary := slices.ContainsFunc(layout.Canaries, func(c spec.Canary) bool { return c.Target == mask.Target })
		if allMasks || canary {
			p.masks[i].Role = add(spec.WatchedPath{Target: mask.Target, Dir: mask.Dir, Canary: canary,
				Names: mask.Dir && !canary && inTree(layout, mask.Target)})
		}
	}
	canaries := slices.SortedFunc(slices.Values(layout.Canaries), func(a, b spec.Canary) int { return spec.ByDepth(a.Target, b.Target) })
	for _, c := range canaries {
		if !layout.Contains(c.Target) {
			role := add(spec.WatchedPath{Target: c.Target, Dir: c.Dir, Canary: true})
			p.binds = append(p.binds, spec.Bind{Role: role, Target: c.Target, ReadOnly: true})
		}
	}
	inRoot := func(b spec.Bind) bool { return spec.Below(b.Target, spec.RootDir) }
	if i := slices.IndexFunc(p.binds, inRoot); i >= 0 {
		p.binds = slices.Insert(p.binds, i, spec.Bind{Role: spec.RoleWatchRoot, Target: spec.RootDir, ReadOnly: true})
	}
}

// inTree reports whether a path lies in a tree, or in a mount on a part of one. The names in
// other mounts and in the input stay hidden.
func inTree(layout spec.Layout, target string) bool {
	return slices.ContainsFunc(layout.Entries, func(e spec.Entry) bool { return e.Role == spec.RoleTree && spec.Below(target, e.Target) })
}

// cannotObserve returns why the program of this request cannot be observed; empty if no
// reason is known.
func cannotObserve(req spec.Request, host spec.Host) string {
	runtime := cmp.Or(req.Runtime, host.DefaultRuntime)
	switch {
	case req.Transfer == spec.TransferCopy:
		return "the engine does not share files with this machine: they are copied"
	case spec.OwnKernel(runtime):
		return "the runtime " + runtime + " has a kernel of its own, whose counters and files cannot be watched"
	}
	return host.Unseen
}

// The paths that must not be canaries: files of the kernel and the engine, the programs of
// the image, and directories in which other mounts lie.
var (
	fixedTrees = []string{"/proc", "/sys", "/dev", "/run", "/var/run", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", spec.FinalDir}
	fixedPaths = []string{"/etc", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/ld.so.preload", "/etc/ld.so.cache",
		"/var", spec.TmpDir, spec.WorkDir, spec.InputDir, spec.HostDir}
)

func isFixed(target string) bool {
	return slices.Contains(fixedPaths, target) ||
		slices.ContainsFunc(fixedTrees, func(tree string) bool { return spec.Within(target, tree) })
}

func checkCanaries(layout spec.Layout) error {
	var errs []error
	for i, c := range layout.Canaries {
		refuse := func(rule string) {
			errs = append(errs, &policy.FieldError{Field: "decoy", Value: fmt.Sprintf("%.200q", c.Text()), Rule: rule})
		}
		if err := spec.CheckPath("decoy", c.Target); err != nil {
			errs = append(errs, err)
			continue
		}
		others := slices.Delete(slices.Clone(layout.Canaries), i, i+1)
		switch covered := coveredMount(layout, c.Target); {
		case isFixed(c.Target):
			refuse("is what the container needs as it is")
		case layout.Script != "" && c.Target == path.Join(spec.WorkDir, layout.ScriptName()):
			refuse("is where the program is")
		case covered != "":
			refuse("hides the mount " + covered)
		case slices.ContainsFunc(others, func(other spec.Canary) bool { return spec.Within(c.Target, other.Target) }):
			refuse("is, or lies in, another decoy")
		case !layout.Contains(c.Target):
		case slices.ContainsFunc(layout.Masks, func(mask spec.Mask) bool { return spec.Below(c.Target, mask.Target) }):
			refuse("lies in a directory that a mask hides; let that be the decoy")
		}
	}
	return errors.Join(errs...)
}

// observe adds the monitored paths to the container, and the file that proves that the
// observer sees its accesses. It comes last: init delays the program until then.
func observe(s *spec.Spec, plan observePlan) {
	if plan.job == nil {
		return
	}
	s.Job.Observe = plan.job
	c := &s.Class
	c.Masks = plan.masks
	c.Binds = append(c.Binds, plan.binds...)
	if !plan.job.Active() {
		return
	}
	c.Binds = append(c.Binds, spec.Bind{Role: spec.RoleHold, Target: spec.HoldDir, ReadOnly: true})
}
