package contract

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/policy"
)

// toolsDocument is the wire form of a registry.
type toolsDocument struct {
	Schema string `yaml:"schema"`
	Tools  []Tool `yaml:"tools"`
}

// ParseRegistry reads a registry. Source is the name of the file in messages. The
// format is strict; the error joins every problem, with its line.
func ParseRegistry(text []byte, source string) (Registry, error) {
	var doc toolsDocument
	lines := map[string]int{}
	problems := strict.Decode(text, &doc, strict.Options{Schema: ToolsSchemaV1, Lines: lines})
	if len(problems) > 0 {
		return Registry{}, strict.Join(source, problems)
	}
	r := Registry{Source: source, tools: map[string]Tool{}}
	var errs []error
	for i, t := range doc.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		report := func(field, value, rule string) {
			path := at + "." + field
			line := lines[path]
			if line == 0 {
				line = lines[at]
			}
			errs = append(errs, errors.New(strict.Problem{Line: line, Path: path, Value: value, Rule: rule}.At(source)))
		}
		t.check(report)
		if _, twice := r.tools[t.ID]; twice {
			report("tool_id", strict.Quoted(t.ID), "is given twice")
		}
		r.tools[t.ID] = t
	}
	if len(doc.Tools) == 0 {
		errs = append(errs, fmt.Errorf("%s: tools: must have at least one tool", source))
	}
	if err := errors.Join(errs...); err != nil {
		return Registry{}, err
	}
	return r, nil
}

// check reports what is wrong with an entry, and compiles its patterns.
func (t *Tool) check(report func(field, value, rule string)) {
	if err := policy.CheckName("tool_id", t.ID); err != nil {
		report("tool_id", strict.Quoted(t.ID), fieldRule(err))
	}
	for _, f := range []struct{ field, value string }{
		{"name", t.Name}, {"version", t.Version}, {"owner", t.Owner}, {"approval.approver", t.Approval.Approver},
	} {
		if strings.TrimSpace(f.value) == "" {
			report(f.field, "", "must not be empty")
		}
	}
	for _, f := range []struct {
		field, value string
		optional     bool
	}{
		{"approval.date", t.Approval.Date, false}, {"last_review", t.LastReview, true}, {"next_review", t.NextReview, true},
	} {
		if _, err := time.Parse(time.DateOnly, f.value); err != nil && (f.value != "" || !f.optional) {
			report(f.field, strict.Quoted(f.value), "must be a date such as 2026-01-31")
		}
	}
	oneOf(report, "status", string(t.Status), []ToolStatus{ToolActive, ToolDeprecated, ToolBlocked})
	oneOf(report, "scope.data_access", t.Scope.DataAccess, []string{dataNone, dataRead, dataWrite})
	oneOf(report, "scope.network", t.Scope.Network, networkLevels())
	oneOf(report, "scope.filesystem", t.Scope.Filesystem, policy.FilesystemLevels())
	t.checkScope(report)
}

func (t *Tool) checkScope(report func(field, value, rule string)) {
	if len(t.Scope.Commands) == 0 {
		report("scope.commands", "", "must name at least one command")
	}
	for i, command := range t.Scope.Commands {
		if rule := textRule(command, maxPath); rule != "" || command == "" {
			report(fmt.Sprintf("scope.commands[%d]", i), strict.Quoted(command), cmp.Or(rule, "must not be empty"))
		}
	}
	for i, pattern := range t.Scope.Arguments {
		// \z, not $: that stands before a line end as well.
		r, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
		if err != nil {
			report(fmt.Sprintf("scope.arguments[%d]", i), strict.Quoted(pattern), "must be a regular expression: "+err.Error())
			continue
		}
		t.arguments = append(t.arguments, r)
	}
	for i, host := range t.Scope.Endpoints {
		if host == "" {
			report(fmt.Sprintf("scope.endpoints[%d]", i), "", "must not be empty")
		}
	}
}

// oneOf reports a word that is none of those that there are.
func oneOf[T ~string](report func(field, value, rule string), field, value string, all []T) {
	if !slices.Contains(all, T(value)) {
		report(field, strict.Quoted(value), "must be one of "+joined(all))
	}
}

func joined[T ~string](all []T) string {
	words := make([]string, len(all))
	for i, word := range all {
		words[i] = string(word)
	}
	return strings.Join(words, ", ")
}
