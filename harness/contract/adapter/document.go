// Package adapter carries out contracts through adapters (AR-01 to AR-09): documents that say how
// a tool is called. The tool is a command, a web API, a library or an MCP server.
//
// An adapter turns the operation and the parameters of a contract into a call, and the output of
// the call into a value. A [Registry] has the adapters, and is the contract.Adapters of the rules
// of a contract.Harness, which runs what has to be run.
package adapter

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter/transform"
	"github.com/evalbox/evalbox/harness/contract/adapter/web"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// SchemaV1 names the wire form of [Adapter]. A document may leave it out.
const SchemaV1 = "evalbox/adapter/v1"

// Type is the kind of tool behind an adapter (AR-01).
type Type string

// Types of adapters.
const (
	CLI Type = "cli"
	API Type = "api"
	SDK Type = "sdk"
	MCP Type = "mcp"
)

// Types are all types.
func Types() []Type { return []Type{CLI, API, SDK, MCP} }

// Status says whether an adapter may be chosen for a tool. One that is named may have any.
type Status string

// Statuses of adapters.
const (
	Active       Status = "active"
	Deprecated   Status = "deprecated"
	Experimental Status = "experimental"
)

// Adapter is one document.
type Adapter struct {
	Schema string `json:"schema,omitempty"`
	ID     string `json:"adapter_id"`
	Name   string `json:"name"`
	// Version is that of the adapter, as semantic versions have it; 1.0.0 if it is left out.
	Version string `json:"version"`
	ToolID  string `json:"tool_id"`
	// ToolVersion is the version of the tool that the adapter is for; empty is Version (CK-01).
	ToolVersion string     `json:"tool_version,omitempty"`
	Type        Type       `json:"type"`
	Interface   Interface  `json:"interface"`
	Transforms  Transforms `json:"transforms,omitzero"`
	Errors      Errors     `json:"errors,omitzero"`
	// SandboxOverride fills in limits that a contract leaves open (AR-08).
	SandboxOverride contract.Override `json:"sandbox_override,omitzero"`
	// Cacheable are operations whose results are the same during a session for the same input
	// (DT-02). "*" are all.
	Cacheable []string `json:"cacheable,omitempty"`
	// Examples are calls that work. Their values are kept as golden outputs.
	Examples []Example `json:"examples,omitempty"`
	Metadata Metadata  `json:"metadata,omitzero"`

	source string // the file, in messages
	digest string // of the file
}

// Interface is the interface of the tool; it has one member, that of the type.
type Interface struct {
	CLI *CommandLine `json:"cli,omitempty"`
	API *web.API     `json:"api,omitempty"`
	SDK *Library     `json:"sdk,omitempty"`
	MCP *Server      `json:"mcp,omitempty"`
}

// Transforms change the parameters and the output of a call (AR-06).
type Transforms struct {
	Input  []transform.Step `json:"input,omitempty"`
	Output []transform.Step `json:"output,omitempty"`
}

// Errors say what follows a failure (AR-07).
type Errors struct {
	Retry    Retry     `json:"retry,omitzero"`
	Fallback *Fallback `json:"fallback,omitempty"`
}

// Retry says when a call is made again. The pause doubles each time, up to a minute.
type Retry struct {
	MaxAttempts int   `json:"max_attempts,omitempty"` // with the first one; 1 to 10, by default 1
	BackoffMS   int64 `json:"backoff_ms,omitempty"`
	// RetryableCodes are exit codes for cli and sdk, HTTP statuses for api, and error codes of
	// JSON-RPC for mcp (resolution 18). A server that cannot be reached has no code; a call is
	// always made again then.
	RetryableCodes []int `json:"retryable_codes,omitempty"`
}

// Fallback is the adapter that is used when all attempts have failed.
type Fallback struct {
	// AdapterID is an adapter for the same tool.
	AdapterID string `json:"adapter_id"`
	// Condition is any (the default), timeout, unavailable, or codes such as "429,503".
	Condition string `json:"condition,omitempty"`
}

// Example is a call that works.
type Example struct {
	Name       string         `json:"name"`
	Operation  string         `json:"operation,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Arguments  []string       `json:"arguments,omitempty"`
	Stdin      string         `json:"stdin,omitempty"`
}

// Metadata is about the document (AR-08).
type Metadata struct {
	Author  string `json:"author,omitempty"`
	Created string `json:"created,omitempty"` // ISO 8601
	Updated string `json:"updated,omitempty"`
	Status  Status `json:"status,omitempty"` // active, if it is left out
	// Examples are for people, in any form.
	Examples []any `json:"examples,omitempty"`
}

// document also has the names that implementations of the specification use (resolution 17).
type document struct {
	Adapter
	ErrorHandling *Errors      `json:"error_handling"`
	Status        Status       `json:"status"`
	CLI           *CommandLine `json:"cli"`
	API           *web.API     `json:"api"`
	SDK           *Library     `json:"sdk"`
	MCP           *Server      `json:"mcp"`
}

// MaxDocument bounds a document, in bytes.
const MaxDocument = 1 << 20

// Parse reads an adapter in YAML or JSON. source is its name in messages. The error joins all
// problems, each with its line.
func Parse(document []byte, source string) (*Adapter, error) {
	a, problems := parse(document)
	if len(problems) > 0 {
		return nil, strict.Join(source, problems)
	}
	a.source, a.digest = source, fmt.Sprintf("%x", sha256.Sum256(document))
	return a, nil
}

func parse(text []byte) (*Adapter, []strict.Problem) {
	if len(text) > MaxDocument {
		return nil, []strict.Problem{{Rule: fmt.Sprintf("has more than %v", policy.Size(MaxDocument))}}
	}
	var d document
	lines := map[string]int{}
	form := strict.Decode(text, &d, strict.Options{
		Tag: "json", Schema: SchemaV1, SchemaOptional: true, Lines: lines, Nullable: []string{"errors.fallback", "error_handling.fallback"},
	})
	if len(lines) == 0 {
		return nil, form // nothing could be read
	}
	k := &checker{lines: lines, form: form}
	d.useAliases(k)
	a := &d.Adapter
	a.Schema, a.Version = SchemaV1, cmp.Or(a.Version, "1.0.0")
	if a.Metadata.Status == "" {
		a.Metadata.Status = Active
	}
	a.check(k)
	all := slices.Concat(form, k.problems)
	slices.SortStableFunc(all, func(a, b strict.Problem) int { return cmp.Compare(a.Line, b.Line) })
	return a, all[:min(len(all), strict.MaxProblems)]
}

// useAliases moves members with the names of implementations to those of the specification.
func (d *document) useAliases(k *checker) {
	one := func(alias, name string, given, both bool) {
		if given && both {
			k.refuse(alias, "", "is the same as "+name+", which is given as well")
		}
		if given && !both {
			k.rename(alias, name)
		}
	}
	in := &d.Interface
	one("error_handling", "errors", d.ErrorHandling != nil, k.lines["errors"] > 0)
	one("status", "metadata.status", d.Status != "", d.Metadata.Status != "")
	one("cli", "interface.cli", d.CLI != nil, in.CLI != nil)
	one("api", "interface.api", d.API != nil, in.API != nil)
	one("sdk", "interface.sdk", d.SDK != nil, in.SDK != nil)
	one("mcp", "interface.mcp", d.MCP != nil, in.MCP != nil)
	if d.ErrorHandling != nil {
		d.Errors = *d.ErrorHandling
	}
	d.Metadata.Status = cmp.Or(d.Metadata.Status, d.Status)
	in.CLI, in.API, in.SDK, in.MCP = cmp.Or(in.CLI, d.CLI), cmp.Or(in.API, d.API), cmp.Or(in.SDK, d.SDK), cmp.Or(in.MCP, d.MCP)
}

// A checker collects the problems of a document.
type checker struct {
	lines map[string]int
	// form are the problems with the form: a field with one is reported once.
	form     []strict.Problem
	problems []strict.Problem
}

// rename gives the lines of a member to another one.
func (k *checker) rename(from, to string) {
	for field, line := range maps.Clone(k.lines) {
		if rest, ok := strings.CutPrefix(field, from); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			k.lines[to+rest] = line
		}
	}
}

// refuse adds a problem. Its line is that of the field, or of the nearest field around it.
func (k *checker) refuse(field, value, rule string) {
	if slices.ContainsFunc(k.form, func(p strict.Problem) bool { return strict.Within(p.Path, field) || strict.Within(field, p.Path) }) {
		return
	}
	line := 0
	for at := field; at != "" && line == 0; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		line = k.lines[at]
	}
	k.problems = append(k.problems, strict.Problem{Line: line, Path: field, Value: value, Rule: rule})
}

var semver = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
})

func (a *Adapter) check(k *checker) {
	for _, f := range []struct{ field, value string }{{"adapter_id", a.ID}, {"tool_id", a.ToolID}} {
		if err := policy.CheckName(f.field, f.value); err != nil {
			k.refuse(f.field, strict.Quoted(f.value), policy.RuleOf(err))
		}
	}
	if strings.TrimSpace(a.Name) == "" {
		k.refuse("name", "", "must not be empty")
	}
	if !semver().MatchString(a.Version) {
		k.refuse("version", strict.Quoted(a.Version), "must be a semantic version such as 1.0.0")
	}
	if !slices.Contains([]Status{Active, Deprecated, Experimental}, a.Metadata.Status) {
		k.refuse("metadata.status", strict.Quoted(string(a.Metadata.Status)), "must be one of active, deprecated, experimental")
	}
	for _, f := range []struct{ field, date string }{{"metadata.created", a.Metadata.Created}, {"metadata.updated", a.Metadata.Updated}} {
		if f.date != "" && !isDate(f.date) {
			k.refuse(f.field, strict.Quoted(f.date), "must be a date or a time of ISO 8601, such as 2026-01-31")
		}
	}
	a.checkInterface(k)
	a.checkTransforms(k)
	a.checkErrors(k)
	a.checkOverride(k)
	a.checkExamples(k)
}

func isDate(date string) bool {
	return slices.ContainsFunc([]string{time.DateOnly, time.RFC3339, "2006-01-02T15:04:05"}, func(layout string) bool {
		_, err := time.Parse(layout, date)
		return err == nil
	})
}

// checkInterface checks that there is the interface of the type, and no other.
func (a *Adapter) checkInterface(k *checker) {
	if !slices.Contains(Types(), a.Type) {
		k.refuse("type", strict.Quoted(string(a.Type)), "must be one of "+text.List(Types()))
		return
	}
	in := a.Interface
	all := map[Type]bool{CLI: in.CLI != nil, API: in.API != nil, SDK: in.SDK != nil, MCP: in.MCP != nil}
	for _, kind := range Types() {
		field, given := "interface."+string(kind), all[kind]
		if given && kind != a.Type {
			k.refuse(field, "", "is for adapters of type "+string(kind))
		}
		if !given && kind == a.Type {
			k.refuse(field, "", "is missing")
		}
	}
	switch {
	case a.Type == CLI && in.CLI != nil:
		in.CLI.check(k)
	case a.Type == API && in.API != nil:
		for _, p := range in.API.Check(a.ID) {
			k.refuse("interface.api."+p.Path, p.Value, p.Rule)
		}
	case a.Type == SDK && in.SDK != nil:
		in.SDK.check(k)
	case a.Type == MCP && in.MCP != nil:
		in.MCP.check(k)
	}
}

func (a *Adapter) checkTransforms(k *checker) {
	_, problems := transform.CompileInput(a.Transforms.Input, anything())
	for _, p := range problems {
		k.refuse("transforms.input"+p.Path, p.Value, p.Rule)
	}
	_, problems = transform.CompileOutput(a.Transforms.Output)
	for _, p := range problems {
		k.refuse("transforms.output"+p.Path, p.Value, p.Rule)
	}
}

// codes are the smallest and the largest code of a type, and their name.
func (a *Adapter) codes() (least, most int, name string) {
	switch a.Type {
	case API:
		return 100, 599, "HTTP statuses"
	case MCP:
		return -1 << 31, 1<<31 - 1, "error codes of JSON-RPC or exit codes"
	case CLI, SDK:
	}
	return 0, 255, "exit codes"
}

func (a *Adapter) checkErrors(k *checker) {
	r := a.Errors.Retry
	if r.MaxAttempts < 0 || r.MaxAttempts > contract.MaxAttempts || r.MaxAttempts == 0 && k.lines["errors.retry.max_attempts"] > 0 {
		k.refuse("errors.retry.max_attempts", fmt.Sprint(r.MaxAttempts), fmt.Sprintf("must be between 1 and %d", contract.MaxAttempts))
	}
	if r.BackoffMS < 0 {
		k.refuse("errors.retry.backoff_ms", fmt.Sprint(r.BackoffMS), "must not be negative")
	}
	least, most, name := a.codes()
	for i, code := range r.RetryableCodes {
		if code < least || code > most {
			k.refuse(fmt.Sprintf("errors.retry.retryable_codes[%d]", i), fmt.Sprint(code), fmt.Sprintf("is not between %d and %d: adapters of type %s have %s", least, most, a.Type, name))
		}
	}
	if f := a.Errors.Fallback; f != nil {
		if err := policy.CheckName("adapter_id", f.AdapterID); err != nil {
			k.refuse("errors.fallback.adapter_id", strict.Quoted(f.AdapterID), policy.RuleOf(err))
		}
		if _, err := parseCondition(f.Condition); err != nil {
			k.refuse("errors.fallback.condition", strict.Quoted(f.Condition), err.Error())
		}
	}
}

func (a *Adapter) checkOverride(k *checker) {
	o := a.SandboxOverride
	for _, f := range []struct {
		field string
		limit *int64
	}{{"timeout_ms", o.TimeoutMS}, {"memory_mb", o.MemoryMB}} {
		if f.limit != nil && *f.limit <= 0 {
			k.refuse("sandbox_override."+f.field, fmt.Sprint(*f.limit), "must be more than 0")
		}
	}
	if o.Network == nil {
		return
	}
	a.checkReach(k)
	for i, host := range o.Network.Allow {
		if _, err := policy.ParseHostPattern(host); err != nil {
			k.refuse(fmt.Sprintf("sandbox_override.network.allow[%d]", i), strict.Quoted(host), policy.RuleOf(err))
		}
	}
}

// checkReach refuses a list of hosts that does not permit the server of the adapter itself.
func (a *Adapter) checkReach(k *checker) {
	server := ""
	switch in := a.Interface; {
	case in.API != nil:
		server = in.API.BaseURL
	case in.MCP != nil && in.MCP.Transport == httpTransport:
		server = in.MCP.Server
	}
	allow := a.SandboxOverride.Network.Allow
	host, port, ok := web.Address(server)
	rules, err := policy.Egress{Level: policy.API, Allow: allow}.Rules(nil, nil)
	if !ok || err != nil || len(allow) == 0 {
		return
	}
	if verdict := rules.Host(host, port); !verdict.Allowed {
		k.refuse("sandbox_override.network.allow", "", fmt.Sprintf("does not permit the server itself, %s: %s; a port other than 80 and 443 must be named", strict.Quoted(server), verdict.Rule))
	}
}

func (a *Adapter) checkExamples(k *checker) {
	names := map[string]bool{}
	for i, e := range a.Examples {
		field := fmt.Sprintf("examples[%d].", i)
		if err := policy.CheckName("name", e.Name); err != nil {
			k.refuse(field+"name", strict.Quoted(e.Name), policy.RuleOf(err))
		}
		if names[e.Name] {
			k.refuse(field+"name", strict.Quoted(e.Name), "is given twice")
		}
		names[e.Name] = true
		if operations := a.Operations(); e.Operation != "" && !slices.Contains(operations, e.Operation) {
			k.refuse(field+"operation", strict.Quoted(e.Operation), "is not an operation: there are "+strings.Join(operations, ", "))
		}
	}
	for i, operation := range a.Cacheable {
		if operations := a.Operations(); operation != "*" && !slices.Contains(operations, operation) {
			k.refuse(fmt.Sprintf("cacheable[%d]", i), strict.Quoted(operation), `is not an operation, and not "*": there are `+strings.Join(operations, ", "))
		}
	}
}
