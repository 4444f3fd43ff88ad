package policy

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxName bounds IDs and names. The patterns leave lengths out: compiling a
// counted repetition costs every start of the program a millisecond.
const maxName = 64

var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`) })

// NameOf returns the name of a run for any text, such as the name of a file: the text itself if it is a name by
// [CheckName]. Otherwise each run of other characters becomes a '-', and a digest of the text follows, so
// that different texts have different names.
func NameOf(text string) string {
	if CheckName("", text) == nil {
		return text
	}
	const digits = 8
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:digits]
	plain := strings.Trim(notOfNames().ReplaceAllString(text, "-"), ".-")
	return strings.TrimLeft(plain[:min(len(plain), maxName-digits-1)]+"-"+sum, "-")
}

var notOfNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9._]+`) })

// CheckName reports whether a run ID or name may become part of a path and of a
// container's name: 1 to 64 letters, digits, '.', '_' or '-', not starting with
// '.' or '-'.
func CheckName(field, name string) error {
	if len(name) > maxName || !namePattern().MatchString(name) {
		return &FieldError{Field: field, Value: fmt.Sprintf("%q", name),
			Rule: "must be 1 to 64 letters, digits, '.', '_' or '-', and not start with '.' or '-'"}
	}
	return nil
}

var envNamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

const (
	// maxEnvString is the kernel's limit for NAME=value with the NUL at its end.
	maxEnvString = 128 << 10
	maxEnvName   = 256
	maxEnvCount  = 1000
	// maxEnvTotal keeps the environment well below the limit of execve(2).
	maxEnvTotal = 1 << 20
)

// CheckEnv reports every variable that a run may not be given, sorted by name.
func CheckEnv(env map[string]string) []error {
	return checkEnv(env, envRule)
}

func checkEnv(env map[string]string, check func(name, value string) string) []error {
	var errs []error
	if len(env) > maxEnvCount {
		errs = append(errs, &FieldError{Field: "env", Rule: fmt.Sprintf("%d variables; at most %d", len(env), maxEnvCount)})
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		total += len(name) + len("=") + len(env[name]) + 1
		if rule := check(name, env[name]); rule != "" {
			errs = append(errs, &FieldError{Field: "env", Value: fmt.Sprintf("%q", name), Rule: rule})
		}
	}
	if total > maxEnvTotal {
		errs = append(errs, &FieldError{Field: "env", Rule: fmt.Sprintf("takes %d bytes in all; at most %d", total, maxEnvTotal)})
	}
	return errs
}

func envRule(name, value string) string {
	if rule := envForm(name, value); rule != "" {
		return rule
	}
	return refusedEnv(name)
}

// CheckEnvForm reports every variable that is malformed or too large, sorted by name. Unlike
// [CheckEnv] it does not look at the meaning of a variable.
func CheckEnvForm(env map[string]string) []error {
	return checkEnv(env, envForm)
}

// DeadlineEnv is the variable in which every program finds the time at which its time limit
// ends, in seconds since 1970 (UTC) with three decimals.
const DeadlineEnv = "SANDBOX_DEADLINE"

// refusedEnv says why a run may not be given a variable, whatever its value; empty if it may. Only
// variables that a run makes are refused: all others reach the program alone, which could set them
// itself.
func refusedEnv(name string) string {
	switch upper := strings.ToUpper(name); {
	case upper == "CUDA_VISIBLE_DEVICES", strings.HasPrefix(upper, "NVIDIA_"):
		return "is refused: it is made of the GPUs that the run has"
	case name == DeadlineEnv:
		return "is refused: it is made of the time limit of the run"
	}
	return ""
}

// PythonChooses reports whether a variable changes which code a Python interpreter runs.
func PythonChooses(name string) bool {
	switch name {
	case "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER",
		"PYTHONWARNINGS", "PYTHONOPTIMIZE", "PYTHONIOENCODING":
		return false
	}
	return strings.HasPrefix(name, "PYTHON")
}

func envForm(name, value string) string {
	switch {
	case len(name) > maxEnvName || !envNamePattern().MatchString(name):
		return "is not the name of an environment variable"
	case !utf8.ValidString(value):
		return "has a value that is not UTF-8"
	case strings.ContainsRune(value, 0):
		return "has a value with a NUL byte"
	case len(name)+len("=")+len(value)+1 > maxEnvString:
		return fmt.Sprintf("takes more than %d bytes with its value", maxEnvString)
	}
	return ""
}
