package contract

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/policy"
)

const (
	// MaxStdin bounds what a contract gives to stdin (IV-05), in bytes of UTF-8.
	MaxStdin = 1 << 20
	// MaxInputFiles bounds the declared input files together (IV-05).
	MaxInputFiles = 10 << 20
	// maxArguments and maxArgumentBytes keep a command line well below what execve(2)
	// takes; each argument counts with the NUL at its end.
	maxArguments     = 4096
	maxArgumentBytes = 128 << 10
	// maxList bounds the other lists, maxPath a path (PATH_MAX) or a host.
	maxList = 1000
	maxPath = 4095
)

// shellCharacters are what strict mode blocks (IV-02).
const shellCharacters = ";|&$`(){}[]<>\\\"'!#*?"

// textRule says what is wrong with a text that must be short and without NUL bytes.
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

// tool checks that the command may be executed (IV-01): by default nothing may.
func (k *checker) tool() {
	const code = "IV-01"
	id, command := k.c.ToolID, k.c.Inputs.Command
	if command == "" {
		k.refuse(code, "inputs.command", "", "must not be empty")
	}
	if t, ok := k.rules.Registry.Tool(id); ok {
		k.t = &t
	}
	switch {
	case k.t == nil && k.rules.OpenAllowlist:
		k.warnings = append(k.warnings, "The allowlist is open: the command is of no registered tool.")
		return
	case id == "":
		k.refuse(code, "tool_id", "", "must name a tool of the registry")
		return
	case k.t == nil:
		k.refuseText(code, "tool_id", id, "is no tool of the registry")
		return
	}
	switch k.t.Status {
	case ToolBlocked:
		k.refuseText(code, "tool_id", id, fmt.Sprintf("Tool '%s' is blocked", k.t.Name)+k.t.instead())
	case ToolDeprecated:
		k.warnings = append(k.warnings, fmt.Sprintf("Tool '%s' is deprecated", k.t.Name)+k.t.instead())
	case ToolActive:
	}
	if command != "" && !slices.Contains(k.t.Scope.Commands, command) {
		k.refuseText(code, "inputs.command", command, fmt.Sprintf("is not a command of %s (%s), whose commands are %s",
			id, k.t.Name, strings.Join(k.t.Scope.Commands, ", ")))
	}
	for i, argument := range k.c.Inputs.Arguments {
		if !k.t.permits(argument) {
			k.refuseText(code, fmt.Sprintf("inputs.arguments[%d]", i), argument, fmt.Sprintf("is not an argument that %s (%s) may be given", id, k.t.Name))
		}
	}
}

// instead is what to use in place of a tool.
func (t Tool) instead() string {
	if t.Replacement == "" {
		return ""
	}
	return "; use " + t.Replacement
}

// arguments checks that the command line can be passed on as it is (IV-02). There is no
// shell, so no character has a meaning; strict mode blocks those of a shell.
func (k *checker) arguments() {
	const code = "IV-02"
	total := 0
	word := func(field, text string) {
		total += len(text) + 1
		if rule := textRule(text, maxArgumentBytes); rule != "" {
			k.refuseText(code, field, text, rule)
			return
		}
		if at := strings.IndexAny(text, shellCharacters); k.rules.Strict && at >= 0 {
			k.refuseText(code, field, text, fmt.Sprintf("must not have the character %s in strict mode", text[at:at+1]))
		}
	}
	word("inputs.command", k.c.Inputs.Command)
	if n := len(k.c.Inputs.Arguments); n > maxArguments {
		k.refuse(code, "inputs.arguments", "", fmt.Sprintf("has %d arguments; at most %d", n, maxArguments))
	}
	for i, argument := range k.c.Inputs.Arguments {
		word(fmt.Sprintf("inputs.arguments[%d]", i), argument)
	}
	if total > maxArgumentBytes {
		k.refuse(code, "inputs.arguments", "", fmt.Sprintf("takes %d bytes with the command; at most %d", total, maxArgumentBytes))
	}
}

// paths checks every path of the contract (IV-03). What a path really is, behind links,
// is resolved later; this refuses what is plainly meant to lead astray.
func (k *checker) paths() {
	in, out, files := k.c.Inputs, k.c.Outputs, k.c.Sandbox.Filesystem
	k.path("inputs.working_directory", in.WorkingDirectory, false)
	k.pathList("inputs.input_files", in.InputFiles, false)
	elevated := policy.FilesystemLevel(files.Level) == policy.Elevated
	k.pathList("sandbox.filesystem.read", files.Read, elevated)
	k.pathList("sandbox.filesystem.write", files.Write, elevated)
	k.pathList("sandbox.filesystem.deny", files.Deny, true) // what is hidden does no harm
	k.pathList("outputs.output_files", out.OutputFiles, false)
	artifacts := make([]string, len(out.Artifacts))
	for i, a := range out.Artifacts {
		artifacts[i] = a.Path
	}
	k.pathList("outputs.artifacts", artifacts, false)
}

func (k *checker) pathList(field string, paths []string, system bool) {
	if len(paths) > maxList {
		k.refuse("IV-03", field, "", fmt.Sprintf("has %d paths; at most %d", len(paths), maxList))
	}
	for i, p := range paths {
		k.path(fmt.Sprintf("%s[%d]", field, i), p, system)
	}
}

func (k *checker) path(field, p string, system bool) {
	if rule := pathRule(p, system); rule != "" {
		k.refuseText("IV-03", field, p, rule)
	}
}

var windowsPath = regexp.MustCompile(`(?i)(^|[\\/])[a-z]:[\\/]*windows([\\/]|$)`)

// pathRule says what is wrong with the text of a path. System permits system paths.
func pathRule(p string, system bool) string {
	if p == "" {
		return "must not be empty"
	}
	if rule := textRule(p, maxPath); rule != "" {
		return rule
	}
	if slices.Contains(strings.FieldsFunc(p, func(c rune) bool { return c == '/' || c == '\\' }), "..") {
		return "must not have .. as a part"
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(p), "/"), "/")
	if !system && (path.IsAbs(p) && (first == "etc" || first == "var") || windowsPath.MatchString(p)) {
		return "is a system path"
	}
	return ""
}

// strippedEnv are variables that make a program execute something else than what the
// contract names, or read it from somewhere else; a '*' at the end stands for the rest of
// a name. Those that [policy.RefusedEnv] refuses come beside them.
var strippedEnv = []string{
	"BASHOPTS", "BASH_ENV", "ENV", "GCONV_PATH", "GIT_*", "GREP_OPTIONS", "IFS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS",
	"LOCPATH", "MAKEFILES", "MAKEFLAGS", "NLSPATH", "NODE_*", "OPENSSL_*", "PERL*", "PS4", "PYTEST_*", "RUBYLIB", "RUBYOPT",
	"SHELLOPTS", "_JAVA_OPTIONS",
}

// matchesEnv says whether a name is one of a list, or begins as one that ends with '*'.
func matchesEnv(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// environment strips what a program must not be given (IV-04).
func (k *checker) environment() {
	const code = "IV-04"
	env := k.c.Inputs.Environment
	malformed := map[string]bool{}
	for _, err := range policy.CheckEnvForm(env) {
		field, value, rule := "inputs.environment", "", fieldRule(err)
		if v := fieldValue(err); v != "" {
			name, _ := strconv.Unquote(v)
			malformed[name] = true
			field, value = envField(name), ""
		}
		k.refuse(code, field, value, rule)
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
		// What was to be kept from the program is not to be shown either.
		v := Violation{Code: code, Field: envField(name), Rule: rule}
		k.stripped = append(k.stripped, v)
		if k.rules.Strict {
			k.violations = append(k.violations, v)
		}
	}
}

// stripRule says why a program is not given a variable; empty if it is.
func (k *checker) stripRule(name string) string {
	if name == "PATH" {
		return "is replaced by that of the image"
	}
	if rule := policy.RefusedEnv(name); rule != "" {
		return rule
	}
	if matchesEnv(name, strippedEnv) {
		return "is refused: it changes what is executed"
	}
	if k.rules.ApprovedEnv != nil && !matchesEnv(name, k.rules.ApprovedEnv) {
		return "is not an approved variable"
	}
	return ""
}

// stdin checks the size of stdin (IV-05).
func (k *checker) stdin() {
	stdin := k.c.Inputs.Stdin
	if stdin != nil && len(*stdin) > MaxStdin {
		k.refuse("IV-05", "inputs.stdin", "", fmt.Sprintf("has %d bytes; at most %d", len(*stdin), MaxStdin))
	}
	if stdin != nil && !utf8.ValidString(*stdin) {
		k.refuse("IV-05", "inputs.stdin", "", "must be UTF-8")
	}
}

// envField is the field of a variable, as [strict] names it.
func envField(name string) string { return strict.Path("inputs.environment", name) }
