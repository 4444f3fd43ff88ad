package plan

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// mountPlan holds the further mounts of a request.
type mountPlan struct {
	binds []spec.Bind
	masks []spec.Mask
	hosts []spec.HostMount
	trees []spec.JobTree
}

// planMounts plans mounts, trees and masks, in the order of their depth: a mount comes
// after all that it lies in.
func planMounts(layout spec.Layout) (mountPlan, error) {
	var plan mountPlan
	masks, err := planMasks(layout)
	plan.masks = masks
	errs := []error{err}
	for _, e := range layout.Entries {
		switch e.Role {
		case spec.RoleMount:
			errs = append(errs, checkSource("mount", e.Source))
			plan.binds = append(plan.binds, spec.Bind{Role: spec.NumberedRole(e.Role, len(plan.hosts)), Target: e.Target, ReadOnly: true})
			plan.hosts = append(plan.hosts, spec.HostMount{Source: e.Source, Target: e.Target})
		case spec.RoleTree:
			tree, err := planTree(e, layout, masks)
			errs = append(errs, err)
			plan.binds = append(plan.binds, spec.Bind{Role: spec.NumberedRole(e.Role, len(plan.trees)), Target: e.Target})
			plan.trees = append(plan.trees, tree)
		}
	}
	return plan, errors.Join(errs...)
}

func checkSource(field, source string) error {
	if !filepath.IsAbs(source) || filepath.Clean(source) != source || filepath.Dir(source) == source {
		return &policy.FieldError{Field: field, Value: fmt.Sprintf("%.200q", source),
			Rule: "must be a clean absolute path of the host, and not the root of a file system"}
	}
	return nil
}

// planTree selects the files of a directory that are copied: not those that are excluded,
// denied, or covered by another mount.
func planTree(e spec.Entry, layout spec.Layout, masks []spec.Mask) (spec.JobTree, error) {
	tree := spec.JobTree{Source: e.Source, Target: e.Target}
	var errs []error
	if e.Source != "" {
		errs = append(errs, checkSource("tree", e.Source))
		if final := layout.Final; final != "" && (fsx.Within(final, e.Source) || fsx.Within(e.Source, final)) {
			errs = append(errs, &policy.FieldError{Field: "tree", Value: e.Source, Rule: "shares a directory with final " + final})
		}
	}
	for _, name := range e.Exclude {
		rel := name
		if filepath.IsAbs(name) {
			rel, _ = filepath.Rel(e.Source, name) // empty after an error, and then refused
		}
		if rel = filepath.ToSlash(filepath.Clean(rel)); name == "" || rel == "." || !filepath.IsLocal(rel) {
			errs = append(errs, &policy.FieldError{Field: "tree", Value: fmt.Sprintf("%.200q", name), Rule: "an excluded path must lie below " + e.Source})
			continue
		}
		tree.Exclude = append(tree.Exclude, rel)
	}
	for _, other := range layout.Entries {
		if spec.Below(other.Target, e.Target) {
			tree.Exclude = append(tree.Exclude, spec.Rel(other.Target, e.Target))
		}
	}
	for _, mask := range masks {
		if layout.Shows(e.Target, mask.Target) {
			tree.Deny = append(tree.Deny, spec.Rel(mask.Target, e.Target))
		}
	}
	tree.Deny = append(tree.Deny, e.Absent...)
	slices.Sort(tree.Exclude)
	slices.Sort(tree.Deny)
	return tree, errors.Join(errs...)
}

// planMasks orders masks and drops those inside of others.
func planMasks(layout spec.Layout) ([]spec.Mask, error) {
	var masks []spec.Mask
	var errs []error
	for _, mask := range layout.Masks {
		refuse := func(rule string) {
			errs = append(errs, &policy.FieldError{Field: "mask", Value: fmt.Sprintf("%.200q", mask.Text()), Rule: rule})
		}
		if err := spec.CheckPath("mask", mask.Target); err != nil {
			errs = append(errs, err)
			continue
		}
		if _, _, ok := layout.Lookup(mask.Target); !ok && !spec.Within(mask.Target, spec.InputDir) {
			refuse("lies in no mount, tree or input, and so would hide nothing")
			continue
		}
		if covered := coveredMount(layout, mask.Target); covered != "" {
			refuse("hides the mount " + covered + " entirely; leave that out instead")
			continue
		}
		if mask.Target == spec.InputDir {
			refuse("hides the input entirely; leave that out instead")
			continue
		}
		masks = append(masks, mask)
	}
	slices.SortFunc(masks, func(a, b spec.Mask) int { return spec.ByDepth(a.Target, b.Target) })
	var outer []spec.Mask
	for _, mask := range masks {
		if !slices.ContainsFunc(outer, func(o spec.Mask) bool { return spec.Within(mask.Target, o.Target) }) {
			outer = append(outer, mask)
		}
	}
	return outer, errors.Join(errs...)
}

// coveredMount returns the target of a mount or tree that is at a path or below it; empty
// if there is none.
func coveredMount(layout spec.Layout, target string) string {
	for _, e := range layout.Entries {
		if e.Role != spec.RoleInput && spec.Within(e.Target, target) {
			return e.Target
		}
	}
	return ""
}

// planWorkDir decides where the program starts: in a directory that certainly exists.
func planWorkDir(req spec.Request, layout spec.Layout, masks []spec.Mask) (string, error) {
	dir := cmp.Or(req.WorkDir, spec.WorkDir)
	if err := spec.CheckPath("workdir", dir); err != nil {
		return "", err
	}
	_, _, shown := layout.Lookup(dir)
	if !shown && dir != spec.WorkDir && dir != spec.FinalDir && !spec.Within(dir, spec.InputDir) {
		return "", &policy.FieldError{Field: "workdir", Value: fmt.Sprintf("%.200q", dir),
			Rule: "must be " + spec.WorkDir + ", ./input, ./final, or a directory of a mount or tree"}
	}
	for _, mask := range masks {
		if spec.Within(dir, mask.Target) {
			return "", &policy.FieldError{Field: "workdir", Value: fmt.Sprintf("%.200q", dir), Rule: "lies in " + mask.Target + ", which is hidden"}
		}
	}
	return dir, nil
}

// planTransfer checks the requested transfer. A runner resolves "auto" before it plans;
// otherwise it means "bind".
func planTransfer(asked string) (string, error) {
	switch asked {
	case "", spec.TransferAuto, spec.TransferBind:
		return spec.TransferBind, nil
	case spec.TransferCopy:
		return spec.TransferCopy, nil
	}
	return "", &policy.FieldError{Field: "transfer", Value: asked, Rule: "must be auto, bind or copy",
		Hint: "leave --transfer out: auto finds out which it must be"}
}
