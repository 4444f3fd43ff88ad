package evaluate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/configs"
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

// allAliases returns the further names of files of a task: those of its layout, and its own, which
// win.
func (t TaskDescription) allAliases() ([]spec.Alias, error) {
	targets := map[string]string{}
	if t.Layout != "" {
		known, ok := layouts()[t.Layout]
		if !ok {
			return nil, &policy.FieldError{Field: "layout", Value: shown(t.Layout), Rule: "must be one of " + text.List(Layouts())}
		}
		maps.Copy(targets, known)
	}
	for name, target := range t.Aliases {
		targets[strings.TrimPrefix(name, "./")] = target
	}
	var aliases []spec.Alias
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		aliases = append(aliases, spec.Alias{Name: name, Target: strings.TrimPrefix(targets[name], "./")})
	}
	return aliases, nil
}
