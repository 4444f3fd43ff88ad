package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// A UsageError is a command line that does not exist.
type UsageError struct{ text, hint string }

func (e *UsageError) Error() string { return e.text }

// Hint implements the interface of errors with hints.
func (e *UsageError) Hint() string { return e.hint }

// Usagef returns a [UsageError] whose hint is the help of a command, named by its path.
func Usagef(command, format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...), fmt.Sprintf("run '%s --help'", command)}
}

// Misuse is [Usagef] with a message that begins with the name of the command.
func Misuse(cmd *cobra.Command, format string, args ...any) error {
	return Usagef(cmd.CommandPath(), Subject(cmd)+": "+format, args...)
}

// UsageHint returns a [UsageError] with a hint of its own.
func UsageHint(hint, format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...), hint}
}

// Subject is the name of a command in a message, which begins with "sandbox: " already.
func Subject(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "sandbox ") }

// FlagError is cobra's function for flags that cannot be read. The words of the library that
// read the flag are left out.
func FlagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	var unknown *pflag.NotExistError
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return UnknownOrHelp(cmd, words) // rather than one of its flags
	}
	if errors.As(err, &unknown) {
		return unknownFlag(cmd, unknown)
	}
	if errors.Is(err, pflag.ErrHelp) { // of --help-all
		return pflag.ErrHelp
	}
	if !errors.As(err, &invalid) {
		return Misuse(cmd, "%s", err)
	}
	reason := invalid.Unwrap()
	if errors.As(reason, &number) {
		reason = errors.New("must be a whole number")
		if number.Func == "ParseBool" {
			reason = errors.New("must be true or false")
		}
	}
	err = Misuse(cmd, "--%s %q: %v", invalid.GetFlag().Name, invalid.GetValue(), reason)
	if topic := flagTopics[invalid.GetFlag().Name]; topic != "" {
		return UsageHint("run 'sandbox help "+topic+"'", "%s", err)
	}
	return err
}

// flagTopics are the topics of `sandbox help` on the values of flags.
var flagTopics = map[string]string{"stop-when": "stop-rules"}

// UnknownOrHelp runs a command that only holds others.
func UnknownOrHelp(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	if word := dockerWord(cmd, args[0]); word != "" {
		return UsageHint("use: "+word, "%s: unknown command %q", Subject(cmd), args[0])
	}
	cmd.SuggestionsMinimumDistance = 2 // letters that differ
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return UsageHint("did you mean "+strings.Join(near, " or ")+"?", "%s: unknown command %q", Subject(cmd), args[0])
	}
	return Misuse(cmd, "unknown command %q", args[0])
}

// UsageArgs makes every complaint about the number of arguments, of a command and of those
// below it, a [UsageError]. Commands that only hold others show their help. The help of all
// has the flags in their order here.
func UsageArgs(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	singleValues(cmd.LocalFlags())
	if cmd.HasSubCommands() && cmd.RunE == nil { // cobra's help would be a success
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, UnknownOrHelp
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			return argumentError(cmd, args, err)
		}
	}
	for _, below := range cmd.Commands() {
		UsageArgs(below)
	}
}

type hintedError struct {
	error

	hint string
}

func (e *hintedError) Unwrap() error { return e.error }

func (e *hintedError) Hint() string { return e.hint }

// WithHint returns an error with a hint.
func WithHint(err error, hint string) error { return &hintedError{err, hint} }

// A FileKind is a kind of files that the caller names: its noun, and a hint for a file that
// cannot be used.
type FileKind struct{ Noun, Hint string }

// Error says that a file cannot be used. The hint is that of the cause, if that has one.
func (k FileKind) Error(path string, err error) error { return &fileError{k, path, err} }

// ReadFile reads and parses a file of a kind.
func ReadFile[T any](k FileKind, path string, parse func(text []byte, source string) (T, error)) (value T, err error) {
	text, err := fsx.Read(path, maxFile)
	if err != nil {
		return value, k.Error(path, err)
	}
	if value, err = parse(text, path); err != nil {
		return value, WithHint(err, k.Hint)
	}
	return value, nil
}

// maxFile bounds a file of [ReadFile] in bytes.
const maxFile = 16 << 20

type fileError struct {
	kind FileKind
	path string
	err  error
}

func (e *fileError) Error() string {
	reason := e.err
	var pathErr *fs.PathError
	if errors.As(reason, &pathErr) {
		reason = pathErr.Err // the path is named already
	}
	return fmt.Sprintf("%s %s: %v", e.kind.Noun, e.path, reason)
}

func (e *fileError) Unwrap() error { return e.err }

func (e *fileError) Hint() string {
	var knows interface{ Hint() string }
	if errors.As(e.err, &knows) && knows.Hint() != "" {
		return knows.Hint()
	}
	return e.kind.Hint
}

// report prints an error, one line for each problem, and hints.
func (a *App) report(err error) {
	for _, line := range problemLines(err) {
		fmt.Fprintf(a.Err, "sandbox: %s\n", terminal.Text(line))
	}
	for _, hint := range a.Hints(err) {
		fmt.Fprintf(a.Err, "sandbox: hint: %s\n", terminal.Text(a.RepeatFlags(hint)))
	}
}

// problemLines are the lines of an error, one for each problem.
func problemLines(err error) []string {
	lines := []string{}
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "sandbox: "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Hints returns the hints for an error that may join several, without repetition.
func (a *App) Hints(err error) []string {
	var all []string
	for _, e := range parts(err) {
		if text := a.hint(e); text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// parts takes apart what errors.Join joined. An error that merely wraps two, as a
// class and a cause, stays whole.
func parts(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.As(err, new(hinter)) && !isJoin(err) {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, parts(e)...)
	}
	return all
}

// isJoin reports whether an error is nothing but its parts.
func isJoin(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	return ok && err.Error() == errors.Join(joined.Unwrap()...).Error()
}

// A hinter is an error that says what to try.
type hinter interface{ Hint() string }

// hint is the hint for one error; empty without one.
func (a *App) hint(err error) string {
	var knows hinter
	var field *policy.FieldError
	var path *sandbox.PathError
	var version *record.VersionError
	if errors.As(err, &knows) {
		return knows.Hint()
	}
	if errors.As(err, &version) {
		if version.Damaged {
			return fmt.Sprintf("if no other version of sandbox has used the directory, write the file again: echo '{\"schema\":%q}' > %s",
				record.StateSchema, text.ShellWord(filepath.Join(version.Dir, record.StateFile)))
		}
		remove := "rm -rf"
		for _, path := range version.Records {
			remove += " " + text.ShellWord(path)
		}
		return "once its runs have ended, delete its records with: " + remove + "; then remove their containers with: sandbox gc; or choose another with --state-dir"
	}
	for _, class := range classHints {
		if errors.Is(err, class.err) {
			return class.hint
		}
	}
	switch {
	case errors.As(err, &field):
		return cmp.Or(field.Hint, a.fieldHint(field.Field))
	case errors.As(err, &path):
		return a.fieldHint(path.Field)
	}
	return ""
}

// classHints are the hints for classes of errors; the first match counts.
var classHints = []struct {
	err  error
	hint string
}{
	{sandbox.ErrEngineUnavailable, "is the engine running? see what is wrong with: sandbox doctor; or name another with --host, --context or DOCKER_HOST"},
	{sandbox.ErrUnenforceable, "see what is missing with: sandbox doctor"},
	{record.ErrNoSpace, "delete old records with: sandbox prune --older-than 7d; or choose another disk with --state-dir"},
	{record.ErrNoRecord, "see all runs with: sandbox ls"},
	{sandbox.ErrNameTaken, "choose another --id, or see whose it is with: sandbox ps"},
	{sandbox.ErrBusy, "see what runs with: sandbox ps"},
	{sandbox.ErrStillRuns, "wait until it has ended, or choose another --final"},
}

// fieldHints are the hints for fields of a request that break a rule, if neither the error
// nor the command has one.
var fieldHints = map[string]string{
	"script":            "give a Python script, or after -- any command of the image",
	"command":           "give a Python script, or after -- any command of the image",
	"args":              "pass long input as a file in the directory of --input",
	"input":             "name a directory with --input; without it ./input is empty",
	"final":             "choose another with --output",
	"state directory":   "choose another with --state-dir",
	"transfer":          "leave --transfer out: the files are then copied to an engine that does not see them",
	"network level":     "permit levels with allow_egress in the user's configuration or SANDBOX_ALLOW_EGRESS; see docs/network.md",
	"allow-host":        "name hosts as example.org, *.example.org, example.org:8443 or 192.0.2.7; see docs/network.md",
	"network":           "leave --network out, or name a network that the engine made: docker network ls",
	"user":              "give numbers other than 0, such as --user 1000:1000, or leave --user out",
	"runtime":           "see what the engine has with: sandbox doctor",
	"gpus":              "see which GPUs there are with: sandbox gpus",
	"gpu_driver":        "leave --gpu-driver out, or see what the engine has with: sandbox doctor",
	"gpu_dir":           "make the directory, or correct SANDBOX_GPU_DIR or gpu_dir in the settings",
	"uid_range":         "give a range such as 70000-99999, or leave uid_range out",
	"gpu_wait":          "give a duration, such as --gpu-wait 10m",
	"env":               "leave it out, or let the program set it",
	"secret":            "give each secret once, as --secret NAME or --secret NAME=FILE, with a name that the program may have",
	"label":             "give --label NAME=VALUE",
	"name":              "choose another --name",
	"id":                "see the IDs of all runs with: sandbox ls; a new run needs no --id, one is made of the time",
	"ulimit":            "give --ulimit NAME=SOFT[:HARD], such as nofile=1024",
	"workspace":         "choose another with --output",
	"working directory": "choose another with --output",
	"alias":             "give --alias NAME=TARGET, such as --alias data=input",
	"mount":             "give other files and directories, which a program may be shown",
	"tree":              "give another directory, which a program may have a copy of",
}

// fieldHint is the hint for a field that breaks a rule. A field that is not known is a limit.
func (a *App) fieldHint(field string) string {
	return cmp.Or(a.FieldHints[field], fieldHints[field], settings.LimitsAdvice)
}

// Commands in a hint, up to where their global flags belong.
var (
	ourCommand = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\bsandbox (run|adopt|exec|contract|evaluate|image|ls|ps|show|logs|rm|stop|wait|prune|gc|gpus|pool|doctor|config|gate|replay)\b`)
	})
	dockerCommand = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\bdocker (pull|tag|rmi|image|network|stop|system)\b`)
	})
)

// RepeatFlags puts the global flags of this command line into the commands of a hint.
// Without them the commands would use another engine, lock or catalog.
func (a *App) RepeatFlags(hint string) string {
	if strings.Contains(hint, "--help") {
		return hint
	}
	engine := a.givenFlags("context", "host")
	all := a.givenFlags("engine") + engine + a.givenFlags("state_dir", "catalog", "lock")
	if a.ConfigFile != "" {
		all += " --config " + text.ShellWord(a.ConfigFile)
	}
	hint = ourCommand().ReplaceAllString(hint, "sandbox"+literal(all)+" $1")
	return dockerCommand().ReplaceAllString(hint, "docker"+literal(engine)+" $1")
}

// literal is text in a replacement of a regular expression.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// givenFlags are those of the settings that were given as flags, without passwords.
func (a *App) givenFlags(names ...string) string {
	flags := ""
	for _, name := range names {
		if v := a.Given[name]; v.Text != "" {
			if u, err := url.Parse(v.Text); name == "host" && err == nil {
				v.Text = u.Redacted()
			}
			flags += " " + v.Name + " " + text.ShellWord(v.Text)
		}
	}
	return flags
}
