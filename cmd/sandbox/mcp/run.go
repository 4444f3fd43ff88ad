package mcp

import (
	"context"
	"maps"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Bounds of the arguments of a run, in bytes.
const (
	maxCode  = 4 << 20
	maxStdin = 8 << 20
)

// runArgs are the arguments of run_python and run_command.
type runArgs struct {
	Code    string            `json:"code,omitempty"`
	Command []string          `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Stdin   *string           `json:"stdin,omitempty"`
	Input   *string           `json:"input,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Name    string            `json:"name,omitempty"`

	limits
}

// runProperties are the properties that both tools have.
var runProperties = map[string]any{
	"args":            texts("Arguments of the program."),
	"stdin":           typed("string", "What the program reads from stdin; nothing if it is left out."),
	"timeout_seconds": typed("number", "Time limit in seconds. It can only lower the limit of this server, as memory and cpus can."),
	"memory":          typed("string", "Memory limit, such as 512m or 1g."),
	"cpus":            typed("number", "Number of processors, such as 0.5 or 2."),
	"input":           typed("string", "Directory below the root that the program finds, read-only, as ./input."),
	"env": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"},
		"description": "Environment variables."},
	"name": typed("string", "Name of the run, for people."),
}

func with(name string, property map[string]any) map[string]any {
	all := maps.Clone(runProperties)
	all[name] = property
	return all
}

func (v *server) addRunTools() {
	open := &sdk.ToolAnnotations{DestructiveHint: new(bool), OpenWorldHint: new(bool)}
	const ends = " The program works in an empty directory, finds input in ./input, and leaves what is to be kept in ./final."
	v.work(&sdk.Tool{
		Name: "run_python", Title: "Run Python", Annotations: open,
		Description: "Run a Python program in a fresh container." + ends,
		InputSchema: object([]string{"code"}, with("code", typed("string", "The text of the program."))),
	}, func(ctx context.Context, c *call) (answer, error) { return v.runProgram(ctx, c, true) })
	v.work(&sdk.Tool{
		Name: "run_command", Title: "Run a command", Annotations: open,
		Description: "Run a command of the image in a fresh container, without a shell." + ends,
		InputSchema: object([]string{"command"}, with("command", texts(`The words of the command, such as ["sh", "-c", "ls input"].`))),
	}, func(ctx context.Context, c *call) (answer, error) { return v.runProgram(ctx, c, false) })
}

// runProgram is run_python, or else run_command.
func (v *server) runProgram(ctx context.Context, c *call, python bool) (answer, error) {
	var args runArgs
	if err := decode(c.args, &args); err != nil {
		return answer{}, err
	}
	if err := args.check(python); err != nil {
		return answer{}, err
	}
	req := v.settings.Request()
	req.Args, req.Env, req.Name, req.Command = args.Args, args.Env, args.Name, args.Command
	if err := args.apply(&req); err != nil {
		return answer{}, err
	}
	if args.Input != nil {
		input, err := v.root.resolve("input", *args.Input)
		if err != nil {
			return answer{}, err
		}
		release, err := v.places.claim(&place{paths: []string{input}})
		if err != nil {
			return answer{}, err
		}
		defer release()
		req.Input = input
	}
	if python {
		script, remove, err := v.stage(args.Code)
		if err != nil {
			return answer{}, err
		}
		defer remove()
		req.Script = script
	}
	return v.run(ctx, c, req, args.Stdin)
}

// run runs a request of a client.
func (v *server) run(ctx context.Context, c *call, req sandbox.Request, stdin *string) (answer, error) {
	var io sandbox.IO
	if stdin != nil {
		io.Stdin = strings.NewReader(*stdin)
	}
	res, err := v.box.Run(ctx, req, io, sandbox.Hooks{
		Waiting: func(why string) { c.progress.say("waiting for %s", why) },
		Started: func() { c.progress.say("started") },
	})
	if err != nil {
		return answer{}, err
	}
	c.progress.say("ended: %s", res.Status)
	if ctx.Err() != nil && res.Status == result.StatusCanceled {
		return answer{}, context.Cause(ctx) // the record has the rest
	}
	return runAnswer(res), nil
}

// check refuses what the plan of a run does not.
func (a runArgs) check(python bool) error {
	refuse := func(field, rule string) error { return &policy.FieldError{Field: field, Rule: rule} }
	switch {
	case python && strings.TrimSpace(a.Code) == "":
		return refuse("code", "is missing or empty")
	case len(a.Code) > maxCode:
		return refuse("code", "has more than 4 MiB")
	case !python && (len(a.Command) == 0 || a.Command[0] == ""):
		return refuse("command", "is missing or empty")
	case a.Stdin != nil && len(*a.Stdin) > maxStdin:
		return refuse("stdin", "has more than 8 MiB")
	}
	return nil
}
