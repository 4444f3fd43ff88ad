package plan

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A directory of links has linkDirBytes, and pageBytes for each entry: a file system in memory takes
// a page for a link with a long target. Its inodes leave no room for files of a program.
const (
	linkDirBytes = 64 << 10
	pageBytes    = 4 << 10
)

// aliasPlan holds the further names of a request: links, mounts of the input, and the directories of those
// names that are not in the working directory. The root is read-only, so each is a tmpfs.
type aliasPlan struct {
	links []spec.Alias
	binds []spec.Bind
	dirs  []spec.Tmpfs
}

// planAliases makes the names and targets of aliases absolute.
func planAliases(req spec.Request, layout spec.Layout) (aliasPlan, error) {
	if n := len(req.Aliases); n > spec.MaxAliases {
		return aliasPlan{}, &policy.FieldError{Field: "alias", Value: fmt.Sprintf("%d names", n), Rule: fmt.Sprintf("must be at most %d", spec.MaxAliases)}
	}
	var plan aliasPlan
	var aliases []spec.Alias
	var dirs []string
	var errs []error
	for _, asked := range req.Aliases {
		a, rule := resolveAlias(asked)
		if rule == "" {
			rule = aliasConflict(a.Name, layout)
		}
		if i := slices.IndexFunc(aliases, func(o spec.Alias) bool { return spec.Within(a.Name, o.Name) || spec.Within(o.Name, a.Name) }); rule == "" && i >= 0 {
			rule = "is, holds or lies in the alias " + aliases[i].Name
		}
		if rule != "" {
			errs = append(errs, &policy.FieldError{Field: "alias", Value: fmt.Sprintf("%.200q", asked.Name+"="+asked.Target), Rule: rule})
			continue
		}
		aliases = append(aliases, a)
		if dir := path.Dir(a.Name); !spec.Within(dir, spec.WorkDir) {
			dirs = append(dirs, dir)
		}
	}
	slices.SortFunc(aliases, func(a, b spec.Alias) int { return spec.ByDepth(a.Name, b.Name) })
	for _, a := range aliases {
		if mountable(a, layout) {
			plan.binds = append(plan.binds, spec.Bind{Role: spec.RoleInput, Target: a.Name, ReadOnly: true})
		} else {
			plan.links = append(plan.links, a)
		}
	}
	plan.dirs = linkDirs(dirs, aliases, plan.binds)
	return plan, errors.Join(errs...)
}

// mountable reports whether an alias is a second mount of the input, which a walk through directories enters
// as it enters no link. A mount would show what masks and mounts of the request hide in the input.
func mountable(a spec.Alias, layout spec.Layout) bool {
	if a.Target != spec.InputDir || spec.Within(a.Name, spec.WorkDir) || layout.Claim != nil {
		return false
	}
	inside := func(target string) bool { return spec.Below(target, spec.InputDir) }
	return !slices.ContainsFunc(layout.Entries, func(e spec.Entry) bool { return inside(e.Target) }) &&
		!slices.ContainsFunc(layout.Masks, func(m spec.Mask) bool { return inside(m.Target) })
}

// linkDirs returns a tmpfs for each directory that lies in no other one, with an inode for
// everything that is made in it. The engine makes the directories that lead to a mount, and init could make
// no link there: each directory of links beside such a mount has a tmpfs of its own.
func linkDirs(dirs []string, aliases []spec.Alias, binds []spec.Bind) []spec.Tmpfs {
	slices.SortFunc(dirs, spec.ByDepth)
	var targets []string
	for _, dir := range dirs {
		if !slices.ContainsFunc(targets, func(t string) bool { return t == dir || spec.Below(dir, t) && !leadsToMount(dir, t, binds) }) {
			targets = append(targets, dir)
		}
	}
	// holder is the deepest of the directories above a path.
	holder := func(of string) (deepest string) {
		for _, t := range targets {
			if spec.Below(of, t) && len(t) > len(deepest) {
				deepest = t
			}
		}
		return deepest
	}
	var all []spec.Tmpfs
	for _, dir := range targets {
		made := map[string]bool{dir: true}
		for _, a := range aliases {
			for at := a.Name; spec.Below(at, dir); at = path.Dir(at) {
				made[at] = made[at] || holder(at) == dir
			}
		}
		maps.DeleteFunc(made, func(_ string, here bool) bool { return !here })
		all = append(all, spec.Tmpfs{Target: dir, SizeBytes: linkDirBytes + pageBytes*int64(len(made)), Inodes: int64(len(made))})
	}
	return all
}

// leadsToMount reports whether the engine makes a directory on the way from above to dir.
func leadsToMount(dir, above string, binds []spec.Bind) bool {
	first, _, _ := strings.Cut(spec.Rel(dir, above), "/")
	return slices.ContainsFunc(binds, func(b spec.Bind) bool { return spec.Below(b.Target, above+"/"+first) })
}

// resolveAlias returns the absolute form of an alias, or the rule that it breaks.
func resolveAlias(asked spec.Alias) (a spec.Alias, rule string) {
	a = spec.Alias{Name: asked.Name, Target: path.Join(spec.WorkDir, asked.Target)}
	absolute := path.IsAbs(asked.Name)
	if !absolute {
		a.Name = spec.WorkDir + "/" + asked.Name
	}
	first, _, _ := strings.Cut(asked.Target, "/")
	switch {
	case spec.CheckPath("alias", a.Name) != nil || !absolute && !filepath.IsLocal(asked.Name):
		return a, "the name must be a clean path without control characters, in the working directory or absolute"
	case asked.Target == "." && absolute:
	case spec.CheckPath("alias", spec.WorkDir+"/"+asked.Target) != nil || first != "input" && first != "final":
		return a, "the target must be input, final or a clean path below one of them"
	}
	if absolute {
		return a, checkLinkDir(path.Dir(a.Name))
	}
	return a, ""
}

// usedDirs are directories that hold files of the image or of the run.
var usedDirs = []string{
	"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", spec.RootDir, "/run", "/sbin", "/sys", "/usr", "/var",
	spec.TmpDir, spec.WorkDir, spec.RepoDir, spec.HostDir,
}

// checkLinkDir says what is wrong with a directory of absolute aliases, which hides what the
// image has there.
func checkLinkDir(dir string) (rule string) {
	switch {
	case dir == "/":
		return "an absolute name needs a directory of its own, such as /data/NAME"
	case dir == "/opt" || slices.ContainsFunc(usedDirs, func(used string) bool { return spec.Within(dir, used) }):
		return "lies in " + dir + ", which programs use"
	}
	return ""
}

// aliasConflict says which file of the run has the place of a name.
func aliasConflict(name string, layout spec.Layout) (rule string) {
	taken := []string{spec.InputDir, spec.FinalDir}
	if script := layout.ScriptName(); script != "" {
		taken = append(taken, path.Join(spec.WorkDir, script))
	}
	for _, e := range layout.Entries {
		taken = append(taken, e.Target)
	}
	for _, c := range layout.Canaries {
		taken = append(taken, c.Target)
	}
	for _, other := range taken {
		if spec.Within(name, other) || spec.Within(other, name) {
			return "is, holds or lies in " + other
		}
	}
	return ""
}
