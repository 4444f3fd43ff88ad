package plan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// planProgram returns the command, the mounts that every program has, and the interpreter that waits
// for it.
func planProgram(req spec.Request, layout spec.Layout) ([]string, []spec.Bind, *spec.Preload, error) {
	command, binds, err := planCommand(req, layout)
	preload, preloadErr := planPreload(req, command)
	return command, binds, preload, errors.Join(err, preloadErr)
}

func planCommand(req spec.Request, layout spec.Layout) ([]string, []spec.Bind, error) {
	binds := []spec.Bind{
		{Role: spec.RoleInput, Target: spec.InputDir, ReadOnly: true, Claim: layout.Claim},
		{Role: spec.RoleFinal, Target: spec.FinalDir},
	}
	for _, f := range spec.AccountFiles("") {
		binds = append(binds, spec.Bind{Role: f.Role, Target: f.Target, ReadOnly: true})
	}
	switch {
	case len(req.Interpreter) > 0 && (layout.Script == "" || req.Interpreter[0] == ""):
		return nil, nil, &policy.FieldError{Field: "interpreter", Rule: "must be a command that runs a script"}
	case layout.Script != "" && len(req.Command) > 0:
		return nil, nil, &policy.FieldError{Field: "command", Rule: "give a script or a command, not both"}
	case layout.Script != "":
		name := layout.ScriptName()
		if err := checkScriptName(name); err != nil {
			return nil, nil, err
		}
		target := path.Join(spec.WorkDir, name)
		binds = append(binds, spec.Bind{Role: spec.RoleProgram, Target: target, ReadOnly: true})
		interpreter := req.Interpreter
		if len(interpreter) == 0 {
			interpreter = []string{"python3"}
		}
		command := slices.Concat(interpreter, []string{target}, req.Args)
		return command, binds, checkWords(command)
	case len(req.Command) > 0 && req.Command[0] != "":
		command := slices.Concat(req.Command, req.Args)
		return command, binds, checkWords(command)
	}
	return nil, nil, &policy.FieldError{Field: "command", Rule: "nothing to run: give a script or a command"}
}

func checkScriptName(name string) error {
	rule := ""
	switch {
	case name == "input" || name == "final":
		rule = "is the name of a directory that every program has: rename the file"
	case strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name):
		rule = "is a name with a control character, or not UTF-8: rename the file"
	default:
		return nil
	}
	return &policy.FieldError{Field: "script", Value: fmt.Sprintf("%.80q", name), Rule: rule}
}

func checkWords(words []string) error {
	total := 0
	for _, word := range words {
		if strings.ContainsRune(word, 0) {
			return &policy.FieldError{Field: "args", Value: fmt.Sprintf("%.80q", word), Rule: "holds a NUL byte"}
		}
		if !utf8.ValidString(word) {
			// The engine's API is JSON, which would change it.
			return &policy.FieldError{Field: "args", Value: fmt.Sprintf("%.80q", word), Rule: "is not UTF-8"}
		}
		total += len(word) + 1
	}
	if total > 128<<10 {
		return &policy.FieldError{Field: "args", Value: fmt.Sprintf("of %d bytes", total), Rule: "must be at most 128 KiB together"}
	}
	return nil
}
