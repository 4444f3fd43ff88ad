package contract

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

const (
	// MaxStdin bounds the stdin of a contract (IV-05), in bytes of UTF-8.
	MaxStdin = 1 << 20
	// MaxInputFiles bounds the declared input files together (IV-05), in bytes.
	MaxInputFiles = 10 << 20
	// maxArguments and maxArgumentBytes keep a command line well below the limit of
	// execve(2). Each argument counts with the NUL at its end.
	maxArguments     = 4096
	maxArgumentBytes = 128 << 10
	// maxList bounds the other lists, maxPath a path (PATH_MAX).
	maxList = 1000
	maxPath = 4095
)

// shellCharacters are blocked in strict mode (IV-02).
const shellCharacters = ";|&$`(){}[]<>\\\"'!#*?"

// textRule is the rule that a short text breaks; empty for none.
func textRule(text string, most int) string {
	switch {
	case strings.ContainsRune(text, 0):
		return "must not have a NUL byte"
	case !utf8.ValidString(text):
		return "must be UTF-8"
	case len(text) > most:
		return fmt.Sprintf("has %d bytes; at most %d", len(text), most)
	}
	return ""
}

// tool checks that the command may be executed (IV-01). By default none may.
func (k *checker) tool() {
	id, command := k.c.ToolID, k.c.Inputs.Command
	if command == "" && !k.adapted.isRemote() && len(k.unadapted) == 0 {
		k.refuse("inputs.command", nil, "must not be empty")
	}
	if t, ok := k.rules.Registry.Tool(id); ok {
		k.t = &t
	}
	switch {
	case k.t == nil && k.rules.OpenAllowlist:
		k.warnings = append(k.warnings, "The allowlist is open: the command is of no registered tool.")
		return
	case id == "":
		k.refuse("tool_id", nil, "must name a tool of the registry")
		return
	case k.t == nil:
		v := k.refuse("tool_id", id, "is not a tool of the registry")
		for _, t := range k.rules.Registry.Tools() {
			if strings.EqualFold(t.Name, id) {
				v.Rule, v.Hint = "is the name of a tool; its ID is "+t.ID, "did you mean "+t.ID+"?"
			}
		}
		return
	}
	switch k.t.Status {
	case registry.Blocked:
		sentence := fmt.Sprintf("Tool '%s' is blocked", k.t.Name) + k.t.Instead()
		k.refuse("tool_id", id, sentence).Sentence = sentence
	case registry.Deprecated:
		k.warnings = append(k.warnings, fmt.Sprintf("Tool '%s' is deprecated", k.t.Name)+k.t.Instead())
	case registry.Active:
	}
	if command != "" && !slices.Contains(k.t.Scope.Commands, command) {
		k.refuse("inputs.command", command, fmt.Sprintf("is not a command of %s (%s), whose commands are %s",
			id, k.t.Name, strings.Join(k.t.Scope.Commands, ", ")))
	}
	for i, argument := range k.c.Inputs.Arguments {
		if !k.t.Permits(argument) {
			k.refuse(fmt.Sprintf("inputs.arguments[%d]", i), argument, fmt.Sprintf("is not an argument that %s (%s) may be given", id, k.t.Name))
		}
	}
}

// arguments checks that the command line can be passed on unchanged (IV-02). There is no
// shell, so no character is special; strict mode blocks those of a shell.
func (k *checker) arguments() {
	total := 0
	// The program that calls a library is ours. It has the parameters in its stdin.
	ours := k.adapted != nil && k.adapted.FilesDir != ""
	word := func(field, text string) {
		total += len(text) + 1
		if rule := textRule(text, maxArgumentBytes); rule != "" {
			k.refuse(field, text, rule).Hint = hintPassAsFile
		} else if at := strings.IndexAny(text, shellCharacters); k.rules.Strict && at >= 0 && !ours {
			k.refuse(field, text, fmt.Sprintf("must not have the character %s in strict mode", text[at:at+1]))
		}
	}
	word("inputs.command", k.c.Inputs.Command)
	if n := len(k.c.Inputs.Arguments); n > maxArguments {
		k.refuse("inputs.arguments", nil, fmt.Sprintf("has %d arguments; at most %d", n, maxArguments)).Hint = hintPassAsFile
	}
	for i, argument := range k.c.Inputs.Arguments {
		word(fmt.Sprintf("inputs.arguments[%d]", i), argument)
	}
	if total > maxArgumentBytes {
		k.refuse("inputs.arguments", nil, fmt.Sprintf("takes %d bytes with the command; at most %d", total, maxArgumentBytes)).Hint = hintPassAsFile
	}
}

// paths checks the text of every path (IV-03). Links are resolved later.
func (k *checker) paths() {
	out, files := k.c.Outputs, k.c.Sandbox.Filesystem
	elevated := policy.FilesystemLevel(files.Level) == policy.Elevated
	artifacts := make([]string, len(out.Artifacts))
	for i, a := range out.Artifacts {
		artifacts[i] = a.Path
	}
	k.path("inputs.working_directory", k.c.Inputs.WorkingDirectory, false)
	for _, list := range []struct {
		field  string
		paths  []string
		system bool // permits system paths
	}{
		{"inputs.input_files", k.c.Inputs.InputFiles, false},
		{"sandbox.filesystem.read", files.Read, elevated},
		{"sandbox.filesystem.write", files.Write, elevated},
		{"sandbox.filesystem.deny", files.Deny, true}, // hiding a system path is harmless
		{"outputs.output_files", out.OutputFiles, false},
		{"outputs.artifacts", artifacts, false},
	} {
		if len(list.paths) > maxList {
			k.refuse(list.field, nil, fmt.Sprintf("has %d paths; at most %d", len(list.paths), maxList))
		}
		for i, p := range list.paths {
			k.path(fmt.Sprintf("%s[%d]", list.field, i), p, list.system)
		}
	}
}

var windowsPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)(^|[\\/])[a-z]:[\\/]*windows([\\/]|$)`) })

func (k *checker) path(field, p string, system bool) {
	rule := textRule(p, maxPath)
	first, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(p), "/"), "/")
	switch {
	case rule != "":
	case p == "":
		rule = "must not be empty"
	case slices.Contains(strings.FieldsFunc(p, func(c rune) bool { return c == '/' || c == '\\' }), ".."):
		rule = "must not have .. as a part"
	case !system && (path.IsAbs(p) && (first == "etc" || first == "var") || windowsPath().MatchString(p)):
		rule = "is a system path"
	}
	if rule != "" {
		k.refuse(field, p, rule)
	}
}

// strippedEnv are variables that make a program execute or read something else than the
// contract names; a '*' at the end stands for the rest of a name.
var strippedEnv = []string{
	"BASHOPTS", "BASH_ENV", "ENV", "GCONV_PATH", "GIT_*", "GREP_OPTIONS", "IFS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS",
	"LOCPATH", "MAKEFILES", "MAKEFLAGS", "NLSPATH", "NODE_*", "OPENSSL_*", "PERL*", "PS4", "PYTEST_*", "RUBYLIB", "RUBYOPT",
	"SHELLOPTS", "_JAVA_OPTIONS",
}

// matchesEnv reports whether a name is in a list, or has a prefix of the list that ends with '*'.
func matchesEnv(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// environment strips the variables that a program must not get (IV-04).
func (k *checker) environment() {
	env := k.c.Inputs.Environment
	malformed := map[string]bool{}
	for _, err := range policy.CheckEnvForm(env) {
		field := "inputs.environment"
		if broken, ok := errors.AsType[*policy.FieldError](err); ok && broken.Value != "" {
			name, _ := strconv.Unquote(broken.Value)
			malformed[name], field = true, envField(name)
		}
		k.refuse(field, nil, policy.RuleOf(err))
	}
	k.env = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if malformed[name] {
			continue
		}
		rule := k.stripRule(name)
		if rule == "" {
			k.env[name] = env[name]
			continue
		}
		// The value is not shown: the program was not to have it either.
		v := Violation{Code: k.code, Field: envField(name), Rule: rule}
		k.stripped = append(k.stripped, v)
		if k.rules.Strict {
			k.violations = append(k.violations, v)
		}
	}
}

// loaderEnv are variables in all letters that are stripped, for what they change.
var loaderEnv = []string{"LD_*", "DYLD_*", "DOCKER_*"}

// StrippedEnv says why no program of a contract gets a variable (IV-04); empty if one may get it.
func StrippedEnv(name string) string {
	switch {
	case name == "PATH":
		return "is replaced by that of the image"
	case matchesEnv(strings.ToUpper(name), loaderEnv), matchesEnv(name, strippedEnv), policy.PythonChooses(name):
		return "is refused: it changes what is executed"
	}
	for _, err := range policy.CheckEnv(map[string]string{name: ""}) {
		return policy.RuleOf(err) // it is made by the run
	}
	return ""
}

// stripRule says why a variable is stripped; empty if it is not.
func (k *checker) stripRule(name string) string {
	if rule := StrippedEnv(name); rule != "" {
		return rule
	}
	if k.rules.ApprovedEnv != nil && !matchesEnv(name, k.rules.ApprovedEnv) {
		return "is not an approved variable"
	}
	return ""
}

// stdin checks the size of stdin (IV-05).
func (k *checker) stdin() {
	switch stdin := k.c.Inputs.Stdin; {
	case stdin == nil:
	case len(*stdin) > MaxStdin:
		k.refuse("inputs.stdin", nil, fmt.Sprintf("has %d bytes; at most %d", len(*stdin), MaxStdin))
	case !utf8.ValidString(*stdin):
		k.refuse("inputs.stdin", nil, "must be UTF-8")
	}
}

// envField is the field of a variable, as [strict] names it.
func envField(name string) string { return strict.Path("inputs.environment", name) }
