package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
)

// Folders inside the container that further mounts may lie in. Nothing of an image
// lies there, so that a mount cannot take the place of a program or of a file that
// the container's start depends on.
const (
	RepoDir = "/repo"
	HostDir = "/host"
)

const maxTarget = 1024

// mountPlan is what the further mounts of a request come to.
type mountPlan struct {
	binds []Bind
	masks []Mask
	hosts []HostMount
	trees []JobTree
}

// planMounts decides about further mounts, trees and masks, in the order of their
// depth: what encloses something is mounted before it. It is pure. script is the name
// of the program in the working directory; empty is none.
func planMounts(req Request, script string) (mountPlan, error) {
	var plan mountPlan
	errs := []error{checkTargets(req, script)}
	for i, m := range sortedMounts(req.Mounts) {
		errs = append(errs, checkSource("mount", m.Source))
		plan.hosts = append(plan.hosts, HostMount(m))
		plan.binds = append(plan.binds, Bind{Role: mountRole(i), Target: m.Target, ReadOnly: true})
	}
	masks, maskErr := planMasks(req)
	plan.masks = masks
	errs = append(errs, maskErr)
	for i, t := range sortedTrees(req.Trees) {
		tree, err := planTree(t, req, masks)
		errs = append(errs, err)
		plan.trees = append(plan.trees, tree)
		plan.binds = append(plan.binds, Bind{Role: treeRole(i), Target: t.Target})
	}
	slices.SortFunc(plan.binds, func(a, b Bind) int { return byDepth(a.Target, b.Target) })
	return plan, errors.Join(errs...)
}

func mountRole(i int) string { return fmt.Sprintf("%s-%d", RoleMount, i) }
func treeRole(i int) string  { return fmt.Sprintf("%s-%d", RoleTree, i) }

func byDepth(a, b string) int {
	return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), strings.Compare(a, b))
}

func sortedMounts(mounts []Mount) []Mount {
	return slices.SortedStableFunc(slices.Values(mounts), func(a, b Mount) int { return byDepth(a.Target, b.Target) })
}

func sortedTrees(trees []Tree) []Tree {
	return slices.SortedStableFunc(slices.Values(trees), func(a, b Tree) int { return byDepth(a.Target, b.Target) })
}

// targetsOf are the targets of all further mounts.
func targetsOf(req Request) []string {
	var targets []string
	for _, m := range req.Mounts {
		targets = append(targets, m.Target)
	}
	for _, t := range req.Trees {
		targets = append(targets, t.Target)
	}
	return targets
}

func checkTargets(req Request, script string) error {
	var errs []error
	seen := map[string]bool{}
	for i, target := range targetsOf(req) {
		field := "mount"
		if i >= len(req.Mounts) {
			field = "tree"
		}
		errs = append(errs, checkTarget(field, target, script))
		if seen[target] {
			errs = append(errs, &policy.FieldError{Field: field, Value: fmt.Sprintf("%.200q", target), Rule: "two mounts have this target"})
		}
		seen[target] = true
	}
	return errors.Join(errs...)
}

// checkTarget permits targets in folders of ours alone.
func checkTarget(field, target, script string) error {
	refuse := func(rule string) error {
		return &policy.FieldError{Field: field, Value: fmt.Sprintf("%.200q", target), Rule: rule}
	}
	if err := checkInside(field, target); err != nil {
		return err
	}
	if target == RepoDir || insideOf(target, RepoDir) || insideOf(target, HostDir) {
		return nil
	}
	rest, inWork := strings.CutPrefix(target, WorkDir+"/")
	first, deeper, _ := strings.Cut(rest, "/")
	switch {
	case !inWork:
		return refuse("must be " + RepoDir + ", or lie in " + RepoDir + ", " + HostDir + " or " + WorkDir)
	case first == "final":
		return refuse("lies in " + FinalDir + ", which is the program's")
	case first == "input" && deeper == "":
		return refuse("is where the input is")
	case first == script:
		return refuse("is where the program is")
	}
	return nil
}

// checkInside permits clean absolute paths of the container.
func checkInside(field, target string) error {
	if !path.IsAbs(target) || path.Clean(target) != target || target == "/" || len(target) > maxTarget || !utf8.ValidString(target) ||
		strings.ContainsFunc(target, unicode.IsControl) {
		return &policy.FieldError{Field: field, Value: fmt.Sprintf("%.200q", target),
			Rule: fmt.Sprintf("must be a clean absolute path inside the container, without control characters, of at most %d bytes", maxTarget)}
	}
	return nil
}

// insideOf reports whether a clean path lies strictly below another.
func insideOf(inner, outer string) bool { return strings.HasPrefix(inner, outer+"/") }

// atOrInside reports whether a clean path is another or lies below it.
func atOrInside(inner, outer string) bool { return inner == outer || insideOf(inner, outer) }

func checkSource(field, source string) error {
	if !filepath.IsAbs(source) || filepath.Clean(source) != source || filepath.Dir(source) == source {
		return &policy.FieldError{Field: field, Value: fmt.Sprintf("%.200q", source),
			Rule: "must be a clean absolute path of the host, and not the root of a file system"}
	}
	return nil
}

// planTree decides what of a folder is copied: not what is excluded, denied, or
// covered by another mount.
func planTree(t Tree, req Request, masks []Mask) (JobTree, error) {
	tree := JobTree{Source: t.Source, Target: t.Target}
	var errs []error
	if t.Source != "" {
		errs = append(errs, checkSource("tree", t.Source))
		if req.Final != "" && (fsx.Within(req.Final, t.Source) || fsx.Within(t.Source, req.Final)) {
			errs = append(errs, &policy.FieldError{Field: "tree", Value: t.Source, Rule: "shares a folder with final " + req.Final})
		}
	}
	for _, name := range t.Exclude {
		rel := name
		if filepath.IsAbs(name) {
			rel, _ = filepath.Rel(t.Source, name) // empty when there is none, which is refused
		}
		if rel = filepath.ToSlash(filepath.Clean(rel)); name == "" || rel == "." || !filepath.IsLocal(rel) {
			errs = append(errs, &policy.FieldError{Field: "tree", Value: fmt.Sprintf("%.200q", name), Rule: "an excluded path must lie below " + t.Source})
			continue
		}
		tree.Exclude = append(tree.Exclude, rel)
	}
	for _, target := range targetsOf(req) {
		if insideOf(target, t.Target) {
			tree.Exclude = append(tree.Exclude, strings.TrimPrefix(target, t.Target+"/"))
		}
	}
	for _, mask := range masks {
		if enclosing(mask.Target, targetsOf(req)) == t.Target {
			tree.Deny = append(tree.Deny, strings.TrimPrefix(mask.Target, t.Target+"/"))
		}
	}
	tree.Deny = append(tree.Deny, req.missing[t.Target]...)
	slices.Sort(tree.Exclude)
	slices.Sort(tree.Deny)
	return tree, errors.Join(errs...)
}

// enclosing is the nearest of the targets that a path is at or below; empty if none.
func enclosing(inner string, targets []string) (nearest string) {
	for _, target := range targets {
		if atOrInside(inner, target) && len(target) > len(nearest) {
			nearest = target
		}
	}
	return nearest
}

// planMasks orders masks and drops those inside of others.
func planMasks(req Request) ([]Mask, error) {
	var masks []Mask
	var errs []error
	for _, text := range maskTexts(req) {
		mask := Mask{Target: strings.TrimSuffix(text, "/"), Folder: strings.HasSuffix(text, "/")}
		refuse := func(rule string) {
			errs = append(errs, &policy.FieldError{Field: "mask", Value: fmt.Sprintf("%.200q", text), Rule: rule})
		}
		if err := checkInside("mask", mask.Target); err != nil {
			errs = append(errs, err)
			continue
		}
		targets := targetsOf(req)
		if enclosing(mask.Target, append(slices.Clone(targets), InputDir)) == "" {
			refuse("lies in no mount, tree or input, and so would hide nothing")
			continue
		}
		if i := slices.IndexFunc(targets, func(target string) bool { return atOrInside(target, mask.Target) }); i >= 0 {
			refuse("hides the mount " + targets[i] + " entirely; leave that out instead")
			continue
		}
		if mask.Target == InputDir {
			refuse("hides the input entirely; leave that out instead")
			continue
		}
		masks = append(masks, mask)
	}
	slices.SortFunc(masks, func(a, b Mask) int { return byDepth(a.Target, b.Target) })
	var outer []Mask
	for _, mask := range masks {
		if !slices.ContainsFunc(outer, func(o Mask) bool { return atOrInside(mask.Target, o.Target) }) {
			outer = append(outer, mask)
		}
	}
	return outer, errors.Join(errs...)
}

// planWorkDir decides where the program starts: a folder that is surely there.
func planWorkDir(req Request, masks []Mask) (string, error) {
	dir := orDefault(req.WorkDir, WorkDir)
	if err := checkInside("workdir", dir); err != nil {
		return "", err
	}
	known := dir == WorkDir || dir == FinalDir || atOrInside(dir, InputDir) || enclosing(dir, targetsOf(req)) != ""
	if !known {
		return "", &policy.FieldError{Field: "workdir", Value: fmt.Sprintf("%.200q", dir),
			Rule: "must be " + WorkDir + ", ./input, ./final, or a folder of a mount or tree"}
	}
	for _, mask := range masks {
		if atOrInside(dir, mask.Target) {
			return "", &policy.FieldError{Field: "workdir", Value: fmt.Sprintf("%.200q", dir), Rule: "lies in " + mask.Target + ", which is hidden"}
		}
	}
	return dir, nil
}
