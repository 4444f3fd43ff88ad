package evaluate

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// layouts are the shipped layouts of directories: for each the targets of further names.
var layouts = sync.OnceValue(func() map[string]map[string]string {
	var file struct {
		Schema  string                       `yaml:"schema"`
		Layouts map[string]map[string]string `yaml:"layouts"`
	}
	if problems := strict.Decode(configs.Layouts(), &file, strict.Options{Schema: "evalbox/layouts/v1"}); len(problems) > 0 {
		panic(fmt.Sprintf("evaluate: layouts.yaml: %v", problems)) // a shipped file, which a test reads
	}
	return file.Layouts
})

// Layouts returns the names of the shipped layouts, sorted.
func Layouts() []string { return slices.Sorted(maps.Keys(layouts())) }

const (
	// competitionPart of a name in a layout is the competition_id of the task.
	competitionPart = "{competition}"
	// entryPart stands for each entry of the data, if there are at most maxEntries.
	entryPart  = "{entry}"
	maxEntries = 200
)

// allAliases returns the further names of files of a task, from its layout and its own aliases, which win.
// input is the directory of the data. Names for its entries are left out without it, and where they would
// be too many. Data that contain a directory called like the competition are arranged as the layout wants
// them, and appear as a whole.
func (t TaskDescription) allAliases(input string) ([]spec.Alias, error) {
	entries, arranged := topOf(input), holdsDir(input, t.CompetitionID)
	all, err := t.aliases(entries, arranged)
	if len(all) > spec.MaxAliases {
		return t.aliases(nil, arranged)
	}
	return all, err
}

func (t TaskDescription) aliases(entries []string, arranged bool) ([]spec.Alias, error) {
	var own, all []spec.Alias
	for _, name := range slices.Sorted(maps.Keys(t.Aliases)) {
		own = append(own, spec.Alias{Name: strings.TrimPrefix(name, "./"), Target: strings.TrimPrefix(t.Aliases[name], "./")})
	}
	if t.Layout != "" {
		known, ok := layouts()[t.Layout]
		if !ok {
			return nil, &policy.FieldError{Field: "layout", Value: shown(t.Layout), Rule: "must be one of " + text.List(Layouts())}
		}
		entries = slices.DeleteFunc(entries, func(name string) bool { return name == t.CompetitionID })
		var wholes []spec.Alias
		for _, name := range slices.Sorted(maps.Keys(known)) {
			dir := path.Dir(name)
			switch {
			case !strings.Contains(name, competitionPart):
				all = append(all, each(name, known[name], entries)...)
			case !isEntry(t.CompetitionID):
				return nil, &policy.FieldError{Field: "competition_id", Value: shown(t.CompetitionID),
					Rule: "must be the name of a directory: the layout " + t.Layout + " has one of that name"}
			case arranged && path.Dir(dir) != "/":
				wholes = append(wholes, spec.Alias{Name: dir, Target: known[name]})
			default:
				a := spec.Alias{Name: strings.ReplaceAll(name, competitionPart, t.CompetitionID), Target: known[name]}
				if arranged {
					a.Target += "/" + t.CompetitionID
				}
				all = append(all, a)
			}
		}
		all = slices.Concat(apartFrom(all, wholes), wholes)
	}
	return slices.Concat(apartFrom(all, own), own), nil
}

// each returns an alias, or one for each entry of the data.
func each(name, target string, entries []string) (all []spec.Alias) {
	if !strings.Contains(name, entryPart) {
		return []spec.Alias{{Name: name, Target: target}}
	}
	for _, entry := range entries {
		all = append(all, spec.Alias{Name: strings.ReplaceAll(name, entryPart, entry), Target: strings.ReplaceAll(target, entryPart, entry)})
	}
	return all
}

// topOf returns the names in a directory that a link can have; none if there are too many, or if the
// directory cannot be read, which its user reports.
func topOf(dir string) []string {
	if dir == "" {
		return nil
	}
	names := firstNames(dir, maxEntries+1)
	if len(names) > maxEntries {
		return nil
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return !isEntry(name) })
}

// holdsDir reports whether a directory has a directory of this name.
func holdsDir(dir, name string) (found bool) {
	if dir == "" || !isEntry(name) {
		return false
	}
	_ = fsx.InRoot(dir, func(root *os.Root) error { // an unreadable directory is reported by its user
		info, err := root.Stat(name)
		found = err == nil && info.IsDir()
		return nil
	})
	return found
}

// firstNames returns at most n names in a directory, in no order; none if it cannot be read.
func firstNames(dir string, n int) (names []string) {
	_ = fsx.InRoot(dir, func(root *os.Root) error {
		open, err := root.Open(".")
		if err != nil {
			return err
		}
		defer open.Close()
		names, _ = open.Readdirnames(n) // an empty directory is an error, too
		return nil
	})
	return names
}

// isEntry reports whether a text can be the name of a link or of a mount.
func isEntry(name string) bool {
	return name != "" && path.Base(name) == name && spec.CheckPath("alias", spec.WorkDir+"/"+name) == nil
}

// apartFrom returns the aliases that neither hold nor lie in one of others.
func apartFrom(aliases, others []spec.Alias) []spec.Alias {
	return slices.DeleteFunc(slices.Clone(aliases), func(a spec.Alias) bool {
		return slices.ContainsFunc(others, func(o spec.Alias) bool { return spec.Within(a.Name, o.Name) || spec.Within(o.Name, a.Name) })
	})
}
