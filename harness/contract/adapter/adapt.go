package adapter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter/transform"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/strict"
)

var _ contract.Adapters = (*Registry)(nil)

// Adapt implements [contract.Adapters]. A contract with a command and without an adapter runs its
// command as it stands.
func (r *Registry) Adapt(c contract.Contract, tool *registry.Tool) (*contract.Adapted, []contract.Violation) {
	if c.AdapterID == "" && c.Inputs.Command != "" {
		return nil, nil
	}
	a, err := r.Resolve(c.AdapterID, c.ToolID)
	if err != nil {
		return nil, []contract.Violation{unresolved(c.AdapterID, err)}
	}
	if a == nil {
		return nil, nil
	}
	own := *a // a call may change its copy
	call := &call{Adapter: &own, registry: r, c: c}
	call.checkTool(tool)
	call.build()
	if len(call.violations) > 0 {
		return nil, call.violations
	}
	return call.adapted, nil
}

// unresolved is the violation of a contract without its adapter.
func unresolved(id string, err error) contract.Violation {
	v := contract.Violation{Code: "CK-01", Field: "adapter_id", Value: strict.Quoted(id), Rule: err.Error()}
	if unknown, ok := errors.AsType[*UnknownError](err); ok {
		v.Rule = "No adapter found: there are " + strings.Join(unknown.Known, ", ")
		v.Sentence = "No adapter found '" + id + "'"
	}
	return v
}

// call is one contract on its way through its adapter.
type call struct {
	*Adapter
	registry   *Registry
	c          contract.Contract
	operation  string
	parameters map[string]any
	output     *transform.Output
	adapted    *contract.Adapted
	violations []contract.Violation
}

func (x *call) refuse(code, field, value, rule string) {
	x.violations = append(x.violations, contract.Violation{Code: code, Field: field, Value: value, Rule: rule})
}

// checkTool compares the adapter with the tool of the contract (CK-01).
func (x *call) checkTool(tool *registry.Tool) {
	switch {
	case x.c.ToolID != x.ToolID:
		x.refuse("CK-01", "adapter_id", strict.Quoted(x.ID), fmt.Sprintf("is for tool %s, and the contract names %s", x.ToolID, strict.Quoted(x.c.ToolID)))
	case tool != nil && !x.matches(*tool):
		x.refuse("CK-01", "adapter_id", strict.Quoted(x.ID), fmt.Sprintf("is for version %s of tool %s, and the registry has %s", x.forVersion(), tool.ID, strict.Quoted(tool.Version)))
	}
}

func (a *Adapter) forVersion() string {
	if a.ToolVersion != "" {
		return a.ToolVersion
	}
	return a.Version
}

// build makes the call.
func (x *call) build() {
	x.operation = x.c.Inputs.Operation
	operations := x.Operations()
	if own := slices.DeleteFunc(slices.Clone(operations), func(o string) bool { return o == ToolsOperation && x.Type == MCP }); x.operation == "" && len(own) == 1 {
		x.operation = own[0]
	}
	if x.operation == ToolsOperation && x.Type == MCP {
		x.Transforms = Transforms{} // they are for what a tool takes and gives
	}
	if !slices.Contains(operations, x.operation) {
		shown, rule := strict.Quoted(x.operation), "is not an operation of "+x.ID+", which has "+strings.Join(operations, ", ")
		if x.operation == "" {
			shown, rule = "", "is missing: "+x.ID+" has "+strings.Join(operations, ", ")
		}
		x.refuse("CK-01", "inputs.operation", shown, rule)
		return
	}
	if !x.transformInput() {
		return
	}
	x.output, _ = transform.CompileOutput(x.Transforms.Output) // it was checked
	fallback := ""
	if x.Errors.Fallback != nil {
		fallback = x.Errors.Fallback.AdapterID
	}
	x.adapted = &contract.Adapted{
		Contract: x.c, ID: x.ID, Version: x.Version, Type: string(x.Type), Fallback: fallback, Digest: x.digest,
		Matches:   fmt.Sprintf("adapter %s %s %s for version %s is %s", x.ID, x.Name, x.Version, x.forVersion(), x.Metadata.Status),
		Retry:     contract.Retry{MaxAttempts: x.Errors.Retry.MaxAttempts, Backoff: time.Duration(x.Errors.Retry.BackoffMS) * time.Millisecond, Codes: x.Errors.Retry.RetryableCodes},
		Cacheable: slices.Contains(x.Cacheable, "*") || slices.Contains(x.Cacheable, x.operation),
		Transform: x.transform,
	}
	if x.Errors.Fallback != nil {
		x.adapted.FallbackIf, _ = parseCondition(x.Errors.Fallback.Condition) // it was checked
	}
	to := &x.adapted.Contract
	to.AdapterID, to.Inputs.Operation = x.ID, x.operation
	to.Sandbox = to.Sandbox.Narrowed(x.SandboxOverride)
	if asked := x.c.Sandbox.Network; len(asked.Allow) > 0 && len(to.Sandbox.Network.Allow) == 0 {
		x.adapted.Warnings = append(x.adapted.Warnings, fmt.Sprintf("Adapter %s does not permit the hosts of the contract: the call reaches none of them.", x.ID))
	}
	switch x.Type {
	case CLI:
		x.commandLine()
	case API:
		x.request()
	case SDK:
		x.function()
	case MCP:
		x.tool()
	}
}

// transformInput applies the input transforms to the parameters.
func (x *call) transformInput() bool {
	in, problems := transform.CompileInput(x.Transforms.Input, x.parameterSchema(x.operation))
	if len(problems) > 0 {
		x.refuse("CK-01", "adapter_id", strict.Quoted(x.ID), problems[0].Rule)
		return false
	}
	parameters, err := in.Apply(x.c.Inputs.Parameters)
	if err != nil {
		x.refuse("CX-01", "inputs.parameters", "", err.Error())
		return false
	}
	x.parameters = parameters
	return true
}

// transform is the output transforms.
func (x *call) transform(value any) (any, error) { return x.output.Apply(value) }

// noArguments refuses the arguments and the stdin of a contract whose adapter has no use for them.
func (x *call) noArguments() {
	in, rule := x.c.Inputs, fmt.Sprintf("are not for adapters of type %s: give parameters", x.Type)
	if len(in.Arguments) > 0 {
		x.refuse("CX-01", "inputs.arguments", "", rule)
	}
	if in.Stdin != nil {
		x.refuse("CX-01", "inputs.stdin", "", fmt.Sprintf("is not for adapters of type %s", x.Type))
	}
	if in.Command != "" && x.adapted.Remote != nil {
		x.refuse("CX-01", "inputs.command", strict.Quoted(in.Command), fmt.Sprintf("is not for adapters of type %s", x.Type))
	}
}

// command sets the command line; the contract may name the same command (resolution 13).
func (x *call) command(executable string, arguments []string) {
	to := &x.adapted.Contract.Inputs
	if to.Command != "" && to.Command != executable {
		x.refuse("IV-01", "inputs.command", strict.Quoted(to.Command), fmt.Sprintf("is not %s, the command of adapter %s; leave it out", strict.Quoted(executable), x.ID))
	}
	to.Command, to.Arguments = executable, arguments
	x.adapted.Target = executable
}

// badParameters adds a violation for each wrong parameter.
func (x *call) badParameters(err error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, each := range all {
		field, rule := "inputs.parameters", each.Error()
		if bad, ok := errors.AsType[*parameterError](each); ok {
			field, rule = strict.Path(field, bad.name), bad.rule
		}
		x.refuse("CX-01", field, "", rule)
	}
}

// commandLine is the call of a command (AR-02).
func (x *call) commandLine() {
	words, env, err := x.Interface.CLI.arguments(x.parameters)
	if err != nil {
		x.badParameters(err)
		return
	}
	x.command(x.Interface.CLI.Executable, slices.Concat(words, x.c.Inputs.Arguments))
	x.setEnv(env)
	x.adapted.Read = func(o contract.Outcome) contract.Answer {
		if len(x.Transforms.Output) > 0 && isCut(o) {
			return contract.Answer{Err: errCut}
		}
		return contract.Answer{Value: o.Stdout}
	}
}

// errCut is an output that cannot be read because a part of it is missing.
var errCut = errors.New("the output is longer than what is captured, so it cannot be read: raise outputs.capture.stdout_bytes")

// isCut reports whether a part of the stdout is missing. Truncated may also be about stderr.
func isCut(o contract.Outcome) bool {
	return o.Truncated && (int64(len(o.Stdout)) < o.StdoutBytes || int64(len(o.Stderr)) >= o.StderrBytes)
}

// setEnv adds variables to the contract.
func (x *call) setEnv(env map[string]string) {
	to := &x.adapted.Contract.Inputs
	all := maps.Clone(env)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, to.Environment) // the contract takes precedence
	if len(all) > 0 {
		to.Environment = all
	}
}

// parameterSchema is the JSON Schema of the parameters of an operation, as far as the interface
// says it. It is the schema that validate with json_schema compares with.
func (a *Adapter) parameterSchema(operation string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object"}
	closed := func(names, required []string) {
		s.Properties, s.Required = map[string]*jsonschema.Schema{}, required
		for _, name := range names {
			s.Properties[name] = &jsonschema.Schema{}
		}
	}
	switch in := a.Interface; a.Type {
	case CLI:
		closed(in.CLI.parameters(), nil)
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	case API:
		closed(in.API.Parameters(operation), in.API.Parameters(operation))
	case SDK:
		names := in.SDK.positional(operation)
		closed(names, names)
	case MCP:
	}
	return s
}

// anything is the schema of all parameters.
func anything() *jsonschema.Schema { return &jsonschema.Schema{Type: "object"} }
