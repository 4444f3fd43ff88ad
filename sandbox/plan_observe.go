package sandbox

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// decoy is a path of [Observe].
type decoy struct {
	target string
	folder bool
}

// text is what the decoy would be as a mask.
func (d decoy) text() string {
	if d.folder {
		return d.target + "/"
	}
	return d.target
}

// folderNames are usually those of folders.
var folderNames = []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"}

// decoysOf reads the decoys of a request. Nothing is checked yet.
func decoysOf(req Request) []decoy {
	if req.Observe == nil {
		return nil
	}
	decoys := make([]decoy, 0, len(req.Observe.Decoys))
	for _, text := range req.Observe.Decoys {
		if rest, home := strings.CutPrefix(text, "~/"); home {
			text = strings.TrimSuffix(orDefault(req.Env["HOME"], TmpDir), "/") + "/" + rest
		}
		target := strings.TrimSuffix(text, "/")
		decoys = append(decoys, decoy{target, target != text || slices.Contains(folderNames, path.Base(target))})
	}
	return decoys
}

// inPlace says that a decoy hides something of a mount, a tree or the input, and not all
// of it, which is refused.
func (d decoy) inPlace(req Request) bool {
	places := append(targetsOf(req), InputDir)
	return !slices.Contains(places, d.target) && enclosing(d.target, places) != ""
}

// maskTexts are the masks of a request, with those that its decoys stand for.
func maskTexts(req Request) []string {
	texts := slices.Clone(req.Masks)
	for _, d := range decoysOf(req) {
		if d.inPlace(req) && !slices.ContainsFunc(texts, func(text string) bool { return strings.TrimSuffix(text, "/") == d.target }) {
			texts = append(texts, d.text())
		}
	}
	return texts
}

// observePlan is what the Observe of a request comes to.
type observePlan struct {
	job   *Observation
	binds []Bind
	masks []Mask
}

// planObserve decides what is observed, and gives each watched path a source of its own.
func planObserve(req Request, masks []Mask) (observePlan, error) {
	plan := observePlan{masks: masks}
	o := req.Observe
	if o == nil || !o.Network && !o.Masks && len(o.Decoys) == 0 {
		return plan, nil
	}
	plan.job = &Observation{Required: o.Required, Watch: []Watch{}}
	why := cannotObserve(req)
	errs := []error{checkDecoys(req)}
	if o.Network {
		plan.job.NetworkWhy = why
		if why == "" && req.Network != "" && req.Network != "none" {
			plan.job.NetworkWhy = "the container is attached to the network " + strconv.Quote(req.Network) + ", which routes lead to"
		}
		plan.job.Network = plan.job.NetworkWhy == ""
	}
	plan.watch(req, decoysOf(req))
	if len(plan.job.Watch) > maxWatched {
		errs = append(errs, &policy.FieldError{Field: "observe", Value: fmt.Sprint(len(plan.job.Watch)) + " paths",
			Rule: fmt.Sprintf("at most %d can be watched: each is a mount", maxWatched)})
	}
	if why != "" && len(plan.job.Watch) > 0 {
		plan.job.WatchWhy, plan.job.Watch, plan.binds, plan.masks = why, []Watch{}, nil, masks
	}
	for _, each := range [][2]string{{"network attempts", plan.job.NetworkWhy}, {"watched paths", plan.job.WatchWhy}} {
		if o.Required && each[1] != "" {
			errs = append(errs, &policy.FieldError{Field: "observe", Value: each[0], Rule: "are required, and cannot be observed: " + each[1]})
		}
	}
	return plan, errors.Join(errs...)
}

// watch numbers the watched paths.
func (p *observePlan) watch(req Request, decoys []decoy) {
	p.masks = slices.Clone(p.masks)
	add := func(w Watch) string {
		p.job.Watch = append(p.job.Watch, w)
		return watchRole(len(p.job.Watch) - 1)
	}
	for i, mask := range p.masks {
		isDecoy := slices.ContainsFunc(decoys, func(d decoy) bool { return d.target == mask.Target })
		if req.Observe.Masks || isDecoy {
			p.masks[i].Role = add(Watch{Target: mask.Target, Folder: mask.Folder, Decoy: isDecoy, Names: mask.Folder && !isDecoy && inTree(req, mask.Target)})
		}
	}
	slices.SortFunc(decoys, func(a, b decoy) int { return byDepth(a.target, b.target) })
	for _, d := range decoys {
		if !d.inPlace(req) {
			role := add(Watch{Target: d.target, Folder: d.folder, Decoy: true})
			p.binds = append(p.binds, Bind{Role: role, Target: d.target, ReadOnly: true})
		}
	}
	below := func(b Bind) bool { return insideOf(b.Target, rootHome) }
	if i := slices.IndexFunc(p.binds, below); i >= 0 {
		p.binds = slices.Insert(p.binds, i, Bind{Role: spec.RoleWatchRoot, Target: rootHome, ReadOnly: true})
	}
}

// rootHome is a folder that images let nobody but root enter: what lies below it could
// not be opened, and so that somebody tried would not be seen.
const rootHome = "/root"

// rootPoints are the paths in [rootHome] that decoys lie on, folder or not, if it is ours.
func rootPoints(s Spec) map[string]bool {
	points := map[string]bool{}
	if slices.ContainsFunc(s.Class.Binds, func(b Bind) bool { return b.Role == spec.RoleWatchRoot }) {
		for _, w := range s.Job.Observe.Watch {
			if insideOf(w.Target, rootHome) {
				points[relInside(w.Target, rootHome)] = w.Folder
			}
		}
	}
	return points
}

// inTree says that a path lies in a tree, or in a mount over a part of one. The names in
// other mounts and in the input stay hidden.
func inTree(req Request, target string) bool {
	return slices.ContainsFunc(req.Trees, func(tree Tree) bool { return insideOf(target, tree.Target) })
}

func watchRole(i int) string { return fmt.Sprintf("%s-%d", RoleWatch, i) }

// cannotObserve is why no program of this request can be observed; empty if it can, as
// far as a plan can tell.
func cannotObserve(req Request) string {
	runtime := orDefault(req.Runtime, req.Host.DefaultRuntime)
	switch {
	case req.Transfer == TransferCopy:
		return "the engine does not share files with this machine: they are copied"
	case spec.OwnKernel(runtime):
		return "the runtime " + runtime + " has a kernel of its own, whose counters and files cannot be watched"
	}
	return req.Host.Unseen
}

// fixedPaths are those that the container needs as they are: what the kernel and the
// engine put there, the programs of the image, and folders that other mounts lie in.
var (
	fixedTrees = []string{"/proc", "/sys", "/dev", "/run", "/var/run", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", FinalDir}
	fixedPaths = []string{"/etc", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/ld.so.preload", "/etc/ld.so.cache",
		"/var", TmpDir, WorkDir, InputDir, HostDir}
)

func checkDecoys(req Request) error {
	var errs []error
	decoys := decoysOf(req)
	for i, d := range decoys {
		refuse := func(rule string) {
			errs = append(errs, &policy.FieldError{Field: "decoy", Value: fmt.Sprintf("%.200q", req.Observe.Decoys[i]), Rule: rule})
		}
		if err := checkInside("decoy", d.target); err != nil {
			errs = append(errs, err)
			continue
		}
		others := func(other decoy) bool { return atOrInside(d.target, other.target) }
		switch outer := slices.IndexFunc(targetsOf(req), func(target string) bool { return atOrInside(target, d.target) }); {
		case below(d.target, fixedTrees) || slices.Contains(fixedPaths, d.target):
			refuse("is what the container needs as it is")
		case req.Script != "" && d.target == path.Join(WorkDir, scriptName(req)):
			refuse("is where the program is")
		case outer >= 0:
			refuse("hides the mount " + targetsOf(req)[outer])
		case slices.ContainsFunc(slices.Delete(slices.Clone(decoys), i, i+1), others):
			refuse("is, or lies in, another decoy")
		case !d.inPlace(req):
		case slices.ContainsFunc(req.Masks, func(text string) bool { return insideOf(d.target, strings.TrimSuffix(text, "/")) }):
			refuse("lies in a folder that a mask hides; let that be the decoy")
		}
	}
	return errors.Join(errs...)
}

// observe gives the container what is watched, and what holds its program back. It comes
// last: the program is held back before anything else of ours starts.
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
	c.Binds = append(c.Binds, Bind{Role: spec.RoleHold, Target: spec.HoldDir, ReadOnly: true})
}
