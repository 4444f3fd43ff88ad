package plan

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// linkDirBytes is the size of a directory of links. Its number of inodes leaves no room for
// files of a program.
const linkDirBytes = 64 << 10

// planAliases makes the names and targets of aliases absolute. It also returns the directories of
// those names that are not in the working directory: the root is read-only, so each is a tmpfs.
func planAliases(req spec.Request, layout spec.Layout) ([]spec.Alias, []spec.Tmpfs, error) {
	if n := len(req.Aliases); n > spec.MaxAliases {
		return nil, nil, &policy.FieldError{Field: "alias", Value: fmt.Sprintf("%d names", n), Rule: fmt.Sprintf("must be at most %d", spec.MaxAliases)}
	}
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
	return aliases, linkDirs(dirs, aliases), errors.Join(errs...)
}

// linkDirs returns a tmpfs for each directory that lies in no other one, with an inode for
// everything that is made in it.
func linkDirs(dirs []string, aliases []spec.Alias) []spec.Tmpfs {
	slices.SortFunc(dirs, spec.ByDepth)
	var all []spec.Tmpfs
	for _, dir := range dirs {
		if slices.ContainsFunc(all, func(t spec.Tmpfs) bool { return spec.Within(dir, t.Target) }) {
			continue
		}
		made := map[string]bool{dir: true}
		for _, a := range aliases {
			for at := a.Name; spec.Below(at, dir); at = path.Dir(at) {
				made[at] = true
			}
		}
		all = append(all, spec.Tmpfs{Target: dir, SizeBytes: linkDirBytes, Inodes: int64(len(made))})
	}
	return all
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
