package contract

import (
	"maps"
	"regexp"
	"slices"
)

// ToolsSchemaV1 names the wire form of a tool registry.
const ToolsSchemaV1 = "evalbox/tools/v1"

// ToolStatus is how far a tool may be used.
type ToolStatus string

// Statuses of tools. Deprecated ones may be used, with a warning.
const (
	ToolActive     ToolStatus = "active"
	ToolDeprecated ToolStatus = "deprecated"
	ToolBlocked    ToolStatus = "blocked"
)

// Tool is one entry of the registry (CC).
type Tool struct {
	ID          string         `yaml:"tool_id" json:"tool_id"`
	Name        string         `yaml:"name" json:"name"`
	Version     string         `yaml:"version" json:"version"`
	Description string         `yaml:"description" json:"description"`
	Owner       string         `yaml:"owner" json:"owner"`
	Status      ToolStatus     `yaml:"status" json:"status"`
	Provenance  ToolProvenance `yaml:"provenance" json:"provenance"`
	Scope       ToolScope      `yaml:"scope" json:"scope"`
	Approval    ToolApproval   `yaml:"approval" json:"approval"`
	// LastReview and NextReview are dates, such as 2026-01-31.
	LastReview string `yaml:"last_review" json:"last_review"`
	NextReview string `yaml:"next_review" json:"next_review"`
	// Replacement is what to use instead of a deprecated or blocked tool.
	Replacement string `yaml:"replacement" json:"replacement"`

	arguments []*regexp.Regexp
}

// ToolProvenance is where a tool comes from.
type ToolProvenance struct {
	RepoURL     string `yaml:"repo_url" json:"repo_url"`
	CommitOrTag string `yaml:"commit_or_tag" json:"commit_or_tag"`
	Checksum    string `yaml:"checksum" json:"checksum"`
	License     string `yaml:"license" json:"license"`
}

// ToolScope is what a tool may do.
type ToolScope struct {
	// Commands are the first words that run the tool, exactly as a contract gives them.
	Commands []string `yaml:"commands" json:"commands"`
	// Arguments are regular expressions (RE2), one of which each argument matches as a
	// whole; none permits every argument.
	Arguments []string `yaml:"arguments" json:"arguments"`
	// Endpoints are the hosts that a contract may open for the tool, exactly as it gives
	// them; none permits all.
	Endpoints []string `yaml:"endpoints" json:"endpoints"`
	// DataAccess is none, read or write.
	DataAccess string `yaml:"data_access" json:"data_access"`
	// Network and Filesystem are the highest levels that the tool may be used with.
	Network    string `yaml:"network" json:"network"`
	Filesystem string `yaml:"filesystem" json:"filesystem"`
}

// What a tool may do with the host's files.
const (
	dataNone  = "none"
	dataRead  = "read"
	dataWrite = "write"
)

// ToolApproval is who let the tool into the registry.
type ToolApproval struct {
	Approver string `yaml:"approver" json:"approver"`
	// Date is such as 2026-01-31.
	Date     string `yaml:"date" json:"date"`
	Evidence string `yaml:"evidence" json:"evidence"`
}

// permits says whether a tool may be given an argument.
func (t Tool) permits(argument string) bool {
	if len(t.arguments) == 0 {
		return len(t.Scope.Arguments) == 0
	}
	return slices.ContainsFunc(t.arguments, func(r *regexp.Regexp) bool { return r.MatchString(argument) })
}

// Registry are the tools that contracts may name. The zero value has none.
type Registry struct {
	// Source is the registry's name in messages.
	Source string
	tools  map[string]Tool
}

// Tool returns the tool of an ID.
func (r Registry) Tool(id string) (Tool, bool) {
	t, ok := r.tools[id]
	return t, ok
}

// Tools returns all tools, sorted by ID.
func (r Registry) Tools() []Tool {
	var tools []Tool
	for _, id := range slices.Sorted(maps.Keys(r.tools)) {
		tools = append(tools, r.tools[id])
	}
	return tools
}
