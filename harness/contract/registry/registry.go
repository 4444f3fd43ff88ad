// Package registry reads the registry of tools (CC): the commands that may be executed, and
// the highest levels of files and network that each tool may be used with. What the registry
// does not list is not permitted (TG).
package registry

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// SchemaV1 names the wire form of a registry.
const SchemaV1 = "evalbox/tools/v1"

// Status says whether a tool may be used.
type Status string

// Statuses of tools. A deprecated tool may be used, with a warning.
const (
	Active     Status = "active"
	Deprecated Status = "deprecated"
	Blocked    Status = "blocked"
)

// Access is the access of a tool to the files of the host.
type Access string

// Levels of data access.
const (
	AccessNone  Access = "none"
	AccessRead  Access = "read"
	AccessWrite Access = "write"
)

// Tool is one entry of the registry.
type Tool struct {
	ID          string     `json:"tool_id"`
	Name        string     `json:"name"`
	Version     string     `json:"version"`
	Description string     `json:"description"`
	Owner       string     `json:"owner"`
	Status      Status     `json:"status"`
	Provenance  Provenance `json:"provenance"`
	Scope       Scope      `json:"scope"`
	Approval    Approval   `json:"approval"`
	// LastReview and NextReview are dates, such as 2026-01-31.
	LastReview string `json:"last_review"`
	NextReview string `json:"next_review"`
	// Replacement is the tool to use instead of a deprecated or blocked one.
	Replacement string `json:"replacement"`

	arguments []*regexp.Regexp
}

// Provenance is the origin of a tool.
type Provenance struct {
	RepoURL     string `json:"repo_url"`
	CommitOrTag string `json:"commit_or_tag"`
	Checksum    string `json:"checksum"`
	License     string `json:"license"`
}

// Scope bounds the use of a tool.
type Scope struct {
	// Commands are the first words that run the tool, exactly as a contract gives them. A tool
	// without commands has endpoints, and is called by adapters.
	Commands []string `json:"commands"`
	// Arguments are regular expressions (RE2). Each argument must match one of them as a
	// whole. An empty list permits every argument.
	Arguments []string `json:"arguments"`
	// Endpoints are the hosts that a contract may open for the tool, exactly as it gives
	// them. An empty list permits all hosts.
	Endpoints  []string `json:"endpoints"`
	DataAccess Access   `json:"data_access"`
	// Network and Filesystem are the highest levels that the tool may be used with.
	Network    policy.NetworkLevel    `json:"network"`
	Filesystem policy.FilesystemLevel `json:"filesystem"`
}

// Approval names the person who added the tool to the registry.
type Approval struct {
	Approver string `json:"approver"`
	Date     string `json:"date"` // such as 2026-01-31
	Evidence string `json:"evidence"`
}

// Permits reports whether the tool accepts an argument.
func (t Tool) Permits(argument string) bool {
	return len(t.Scope.Arguments) == 0 ||
		slices.ContainsFunc(t.arguments, func(r *regexp.Regexp) bool { return r.MatchString(argument) })
}

// Instead names the replacement of the tool, as the end of a sentence. It is empty if there
// is none.
func (t Tool) Instead() string {
	if t.Replacement == "" {
		return ""
	}
	return "; use " + t.Replacement
}

// Registry is a set of tools. The zero value is empty.
type Registry struct {
	// Source is the registry's name in messages.
	Source string
	tools  []Tool // by ID
}

// Tool returns the tool with an ID.
func (r Registry) Tool(id string) (Tool, bool) {
	if i := slices.IndexFunc(r.tools, func(t Tool) bool { return t.ID == id }); i >= 0 {
		return r.tools[i], true
	}
	return Tool{}, false
}

// Tools returns all tools, sorted by ID. It is never nil.
func (r Registry) Tools() []Tool { return append([]Tool{}, r.tools...) }

// Check says why a command line must not be executed, for callers that have no contract
// (IV-01). It is nil if a tool that is not blocked has the first word among its commands and
// permits every argument.
func (r Registry) Check(argv []string) error {
	if len(argv) == 0 {
		return fmt.Errorf("%s: there is no command", r.Source)
	}
	blocked, refused := "", ""
	for _, t := range r.tools {
		if !slices.Contains(t.Scope.Commands, argv[0]) {
			continue
		}
		at := slices.IndexFunc(argv[1:], func(argument string) bool { return !t.Permits(argument) })
		switch {
		case t.Status == Blocked:
			blocked = cmp.Or(blocked, fmt.Sprintf("tool %s is blocked%s", t.ID, t.Instead()))
		case at < 0:
			return nil
		default:
			refused = fmt.Sprintf("argument %d, %.200q, is not one that tool %s may be given", at+1, argv[at+1], t.ID)
		}
	}
	return fmt.Errorf("%s: %s", r.Source, cmp.Or(refused, blocked, fmt.Sprintf("%.200q is a command of no tool", argv[0])))
}

// Parse reads a registry in YAML or JSON. Source is the name of the file in messages. The
// format is strict; the error joins every problem, with its line.
func Parse(document []byte, source string) (Registry, error) {
	var doc struct {
		Schema string `json:"schema"`
		Tools  []Tool `json:"tools"`
	}
	lines := map[string]int{}
	if problems := strict.Decode(document, &doc, strict.Options{Tag: "json", Schema: SchemaV1, Lines: lines}); len(problems) > 0 {
		return Registry{}, strict.Join(source, problems)
	}
	var problems []strict.Problem
	if len(doc.Tools) == 0 {
		problems = append(problems, strict.Problem{Path: "tools", Rule: "must have at least one tool"})
	}
	known := map[string]bool{}
	for i := range doc.Tools {
		t, at := &doc.Tools[i], fmt.Sprintf("tools[%d]", i)
		report := func(field, value, rule string) {
			line := cmp.Or(lines[at+"."+field], lines[at])
			problems = append(problems, strict.Problem{Line: line, Path: at + "." + field, Value: value, Rule: rule})
		}
		t.check(report)
		if known[t.ID] {
			report("tool_id", strict.Quoted(t.ID), "is given twice")
		}
		known[t.ID] = true
		for _, list := range []*[]string{&t.Scope.Commands, &t.Scope.Arguments, &t.Scope.Endpoints} {
			*list = append([]string{}, *list...) // the wire form, which is a registry again, has no null
		}
	}
	if len(problems) > 0 {
		return Registry{}, strict.Join(source, problems)
	}
	slices.SortFunc(doc.Tools, func(a, b Tool) int { return strings.Compare(a.ID, b.ID) })
	return Registry{Source: source, tools: doc.Tools}, nil
}

// maxCommand bounds a command, in bytes (PATH_MAX).
const maxCommand = 4095

// check reports the problems of an entry, and compiles its patterns.
func (t *Tool) check(report func(field, value, rule string)) {
	if err := policy.CheckName("tool_id", t.ID); err != nil {
		report("tool_id", strict.Quoted(t.ID), policy.RuleOf(err))
	}
	for _, f := range []struct{ field, value string }{
		{"name", t.Name}, {"version", t.Version}, {"owner", t.Owner}, {"approval.approver", t.Approval.Approver},
	} {
		if strings.TrimSpace(f.value) == "" {
			report(f.field, "", "must not be empty")
		}
	}
	for _, f := range []struct{ field, value string }{
		{"approval.date", t.Approval.Date}, {"last_review", t.LastReview}, {"next_review", t.NextReview},
	} {
		if _, err := time.Parse(time.DateOnly, f.value); err != nil && (f.value != "" || f.field == "approval.date") {
			report(f.field, strict.Quoted(f.value), "must be a date such as 2026-01-31")
		}
	}
	scope := t.Scope
	oneOf(report, "status", t.Status, []Status{Active, Deprecated, Blocked})
	oneOf(report, "scope.data_access", scope.DataAccess, []Access{AccessNone, AccessRead, AccessWrite})
	oneOf(report, "scope.network", scope.Network, policy.NetworkLevels())
	oneOf(report, "scope.filesystem", scope.Filesystem, policy.FilesystemLevels())
	if len(scope.Commands) == 0 && len(scope.Endpoints) == 0 {
		report("scope.commands", "", "must name at least one command, or scope.endpoints a host")
	}
	for i, command := range scope.Commands {
		field := fmt.Sprintf("scope.commands[%d]", i)
		switch {
		case command == "":
			report(field, `""`, "must not be empty")
		case strings.ContainsRune(command, 0):
			report(field, strict.Quoted(command), "must not have a NUL byte")
		case len(command) > maxCommand:
			report(field, strict.Quoted(command), fmt.Sprintf("has %d bytes; at most %d", len(command), maxCommand))
		}
	}
	for i, pattern := range scope.Arguments {
		r, err := regexp.Compile(`\A(?:` + pattern + `)\z`) // \z, because $ also matches before a line end
		if err != nil {
			report(fmt.Sprintf("scope.arguments[%d]", i), strict.Quoted(pattern), "must be a regular expression: "+err.Error())
			continue
		}
		t.arguments = append(t.arguments, r)
	}
	for i, host := range scope.Endpoints {
		if host == "" {
			report(fmt.Sprintf("scope.endpoints[%d]", i), "", "must not be empty")
		}
	}
}

func oneOf[T ~string](report func(field, value, rule string), field string, value T, all []T) {
	if !slices.Contains(all, value) {
		report(field, strict.Quoted(string(value)), "must be one of "+text.List(all))
	}
}
