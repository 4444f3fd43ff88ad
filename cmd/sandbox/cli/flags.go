package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// RequestKeys are the settings that every command has as flags which runs programs.
var RequestKeys = []string{
	"image", "allow_unlocked", "timeout", "soft_timeout", "soft_signal", "stop_when", "grace", "memory", "cpus",
	"gpus", "gpu_driver", "gpu_share", "gpu_wait", "kubernetes.schedule_timeout", "network", "user", "runtime", "isolation", "transfer", "disk_bound", "preload",
	"pids_limit", "shm_size", "tmp_size", "scratch_size", "disk", "output_limit",
}

// A Rule is what a command demands of its flags. See [Check].
type Rule func(cmd *cobra.Command) error

// Check returns the first problem of the flags of a command.
func Check(cmd *cobra.Command, rules ...Rule) error {
	for _, rule := range rules {
		if err := rule(cmd); err != nil {
			return err
		}
	}
	return nil
}

// Required demands that all of these flags are given.
func Required(names ...string) Rule {
	return func(cmd *cobra.Command) error {
		for _, name := range names {
			if !cmd.Flags().Changed(name) {
				return Misuse(cmd, "--%s is missing", name)
			}
		}
		return nil
	}
}

// NotEmpty demands that none of these flags is given as an empty text. advice, if any,
// follows the message.
func NotEmpty(advice string, names ...string) Rule {
	return func(cmd *cobra.Command) error {
		for _, name := range names {
			if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
				return Misuse(cmd, "--%s is empty%s", name, advice)
			}
		}
		return nil
	}
}

// Directory is advice for [NotEmpty].
const Directory = ": give a directory, or leave it out"

// Together demands that both flags are given, or neither.
func Together(one, other string) Rule {
	return func(cmd *cobra.Command) error {
		if cmd.Flags().Changed(one) != cmd.Flags().Changed(other) {
			return Misuse(cmd, "--%s and --%s go together", one, other)
		}
		return nil
	}
}

// Apart demands that not both flags are given.
func Apart(one, other string) Rule {
	return func(cmd *cobra.Command) error {
		if cmd.Flags().Changed(one) && cmd.Flags().Changed(other) {
			return Misuse(cmd, "--%s and --%s do not go together", one, other)
		}
		return nil
	}
}

// Needs demands the flag other beside each of these flags.
func Needs(other string, names ...string) Rule {
	return func(cmd *cobra.Command) error {
		for _, name := range names {
			if cmd.Flags().Changed(name) && !cmd.Flags().Changed(other) {
				return Misuse(cmd, "--%s needs --%s", name, other)
			}
		}
		return nil
	}
}

// Wrong refuses the flags if wrong is true, for what concerns their values.
func Wrong(wrong bool, format string, args ...any) Rule {
	return func(cmd *cobra.Command) error {
		if wrong {
			return Misuse(cmd, format, args...)
		}
		return nil
	}
}

// value is a flag whose text is read and shown by functions. show is nil for a flag that has
// no default.
type value struct {
	kind string
	set  func(text string) error
	show func() string
	// adds says that the flag may be repeated.
	adds bool
}

func (v *value) String() string {
	if v.show == nil {
		return ""
	}
	return v.show()
}

func (v *value) Set(text string) error { return v.set(text) }

func (v *value) Type() string { return v.kind }

// Duration is a flag that is read as settings read durations. Zero is not shown.
func Duration(target *time.Duration) pflag.Value {
	return &value{kind: "duration", set: func(text string) (err error) {
		*target, err = settings.ReadDuration(text)
		if err == nil && *target < 0 {
			err = errors.New("must not be negative")
		}
		return err
	}, show: func() string {
		if *target == 0 {
			return ""
		}
		return target.String()
	}}
}

// Optional is a flag whose value is nil until it is given.
func Optional[T any](target **T, kind string, read func(text string) (T, error)) pflag.Value {
	return &value{kind: kind, set: func(text string) error {
		v, err := read(text)
		*target = &v
		return err
	}, show: func() string {
		if *target == nil {
			return ""
		}
		return fmt.Sprint(**target)
	}}
}

// Text is a function of [Optional] that takes every text.
func Text(text string) (string, error) { return text, nil }

// List is a flag that adds the values of its text to a list each time it is given.
func List[T any](target *[]T, kind string, read func(text string) ([]T, error)) pflag.Value {
	return &value{kind: kind, adds: true, set: func(text string) error {
		more, err := read(text)
		if err == nil {
			*target = append(*target, more...)
		}
		return err
	}}
}

// One is a function of [List] that takes every text as one value.
func One(text string) ([]string, error) { return []string{text}, nil }

// Each is a function of [List] that reads values with commas between them.
func Each[T any](read func(part string) (T, error)) func(text string) ([]T, error) {
	return func(text string) (all []T, err error) {
		for part := range strings.SplitSeq(text, ",") {
			v, err := read(strings.TrimSpace(part))
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
}

// Size is a flag that is read as settings read sizes; 0 is a size too.
func Size(target *policy.Size) pflag.Value {
	return &value{kind: "size", set: func(text string) (err error) {
		*target = 0
		if text != "0" {
			*target, err = settings.ReadSize(text)
		}
		return err
	}, show: func() string { return target.String() }}
}

// EnvFlags are --env, --env-file and --secret.
type EnvFlags struct{ Pairs, Files, secrets []string }

// Register adds the flags to a command.
func (f *EnvFlags) Register(flags *pflag.FlagSet) {
	flags.VarP(List(&f.Pairs, "NAME=VALUE", One), "env", "e", "environment variable; NAME alone takes the caller's value, if there is one")
	flags.StringArrayVar(&f.Files, "env-file", nil, "`file` of environment variables")
	flags.Var(List(&f.secrets, "NAME[=FILE]", One), "secret", "variable of the caller, or with FILE the content of a file; its value is in no record, plan or log")
}

// Secrets returns the secrets, without their values.
func (f *EnvFlags) Secrets() []sandbox.Secret {
	var all []sandbox.Secret
	for _, text := range f.secrets {
		name, file, named := strings.Cut(text, "=")
		if named && file == "" {
			name = text // a file without a name is not the caller's variable; the name is refused
		}
		all = append(all, sandbox.Secret{Name: name, File: file})
	}
	return all
}

// maxEnvFile bounds a file of variables, in bytes, far above the kernel's limit.
const maxEnvFile = 16 << 20

var envFile = FileKind{"env-file", "give a text file with lines NAME=VALUE"}

// Read returns the variables. Those of --env win.
func (f *EnvFlags) Read(a *App) (map[string]string, error) {
	env := map[string]string{}
	for _, file := range f.Files {
		data, err := fsx.Read(file, maxEnvFile)
		if err == nil {
			err = parseEnvFile(data, a.Environ, env)
		}
		if err != nil {
			return nil, envFile.Error(file, err)
		}
	}
	for _, pair := range f.Pairs {
		if err := addEnv(pair, a.Environ, env); err != nil {
			return nil, Usagef(a.Command, "--env: %s", err)
		}
	}
	return env, nil
}

// parseEnvFile reads variables as docker run --env-file does: NAME=VALUE, or NAME alone for
// the caller's own value, if there is one. Lines that begin with # and blank lines are left
// out. Nothing is unquoted or expanded. Errors name the line.
func parseEnvFile(data []byte, environ []string, into map[string]string) error {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if !utf8.ValidString(line) {
			return fmt.Errorf("line %d is not UTF-8 text", n)
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := addEnv(line, environ, into); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

// addEnv adds one variable as docker run --env does.
func addEnv(pair string, environ []string, into map[string]string) error {
	name, text, given := strings.Cut(pair, "=")
	if name == "" || strings.ContainsAny(name, " \t") {
		return fmt.Errorf("variable %q: must be NAME=VALUE or NAME", name)
	}
	if given {
		into[name] = text
		return nil
	}
	for _, own := range environ {
		if text, ok := strings.CutPrefix(own, name+"="); ok {
			into[name] = text
		}
	}
	return nil
}

// once is a flag with one value: it is refused when it is given twice with different values.
// The last one would silently win, where another tool adds them up.
type once struct {
	pflag.Value

	given []string
}

func (o *once) Unwrap() pflag.Value { return o.Value }

func (o *once) Set(text string) error {
	if o.given = append(o.given, text); len(o.given) > 1 && text != o.given[0] {
		return fmt.Errorf("is given twice, first as %q: give it once", o.given[0])
	}
	return o.Value.Set(text)
}

// singleValues makes each flag with one value a [once].
func singleValues(flags *pflag.FlagSet) {
	flags.VisitAll(func(flag *pflag.Flag) {
		own, adds := flag.Value.(*value)
		_, slice := flag.Value.(pflag.SliceValue)
		_, done := flag.Value.(*once)
		if !slice && !done && (!adds || !own.adds) && flag.Value.Type() != "count" {
			flag.Value = &once{Value: flag.Value}
		}
	})
}

// LabelFlags is --label.
type LabelFlags struct{ pairs []string }

// Register adds the flag to a command.
func (f *LabelFlags) Register(flags *pflag.FlagSet) {
	flags.VarP(List(&f.pairs, "NAME=VALUE", One), "label", "l", "label of each run")
}

// Read returns the labels; one without "=" has an empty value.
func (f *LabelFlags) Read() map[string]string {
	labels := map[string]string{}
	for _, pair := range f.pairs {
		name, text, _ := strings.Cut(pair, "=")
		labels[name] = text
	}
	return labels
}

// OldNames lets flags of a command have former names for one release. Neither help nor
// completion shows them.
func OldNames(cmd *cobra.Command, newOf map[string]string) {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(newOf[name], name))
	})
}

// Choices lets a flag complete to fixed values. A description may follow a value after a tab.
func Choices(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag does not exist: a mistake of the caller
	}
}

// ContractKeys are the settings of the rules for contracts.
var ContractKeys = []string{"tool_registry", "adapters", "profiles", "strict"}

// commonFlags are the flags that the short help of a command with many flags shows.
var commonFlags = []string{
	"input", "final", "output", "task", "grader", "answers", "exec", "config", "spec", "axis", "seeds", "jobs", "root",
	"baseline", "junit", "allow-host", "env", "image", "timeout", "memory", "gpus", "json", "dry-run",
}

// manyFlags is the number of flags of its own above which a command has a short help.
const manyFlags = 12

// GroupedUsage is the usage of a command with many flags. It shows the common ones, and with
// --help-all every flag in groups: its own, those of its runs, those of contracts, those of
// its output, and those of every command.
func GroupedUsage(cmd *cobra.Command) error {
	groups := []struct {
		title string
		flags *pflag.FlagSet
	}{
		{"Flags", newFlagGroup()}, {"Flags of each run", newFlagGroup()}, {"Flags of contracts", newFlagGroup()},
		{"Flags of the output", newFlagGroup()}, {"Global Flags", cmd.InheritedFlags()},
	}
	common, all := newFlagGroup(), 0
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		key, group := settings.KeyOf(flag), 0
		switch {
		case slices.Contains(RequestKeys, key):
			group = 1
		case slices.Contains(ContractKeys, key):
			group = 2
		case key != "" || flag.Name == "help":
			group = 3
		}
		groups[group].flags.AddFlag(flag)
		if slices.Contains(commonFlags, flag.Name) {
			common.AddFlag(flag)
		}
		if !flag.Hidden {
			all++
		}
	})
	text := fmt.Sprintf("Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
	show := func(title string, flags *pflag.FlagSet) {
		if usages := flags.FlagUsages(); usages != "" {
			text += "\n" + title + ":\n" + strings.TrimRight(usages, "\n") + "\n"
		}
	}
	if all > manyFlags && !wantsAll(cmd) {
		show("Common flags", common)
		text += fmt.Sprintf("\nAll %d flags, in groups: %s --help-all\n", all, cmd.CommandPath())
	} else {
		for _, group := range groups {
			show(group.title, group.flags)
		}
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), text)
	return err
}

// helpAll is the flag --help-all.
const helpAll = "help-all"

// HelpAll adds the flag --help-all to all commands. Without it, the help of a command does not
// repeat the flags that every command has.
func HelpAll(root *cobra.Command) {
	asked := ""
	flag := root.PersistentFlags().VarPF(&value{kind: "bool", set: func(text string) error {
		asked = text
		return pflag.ErrHelp
	}, show: func() string { return asked }}, helpAll, "", "show the help with every flag")
	flag.NoOptDefVal = "true"
	global := "{{if .HasAvailableInheritedFlags}}\n\nGlobal Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}"
	template := root.UsageTemplate()
	short := strings.Replace(template, global, "{{if .HasAvailableInheritedFlags}}\n\nGlobal flags: {{.Root.CommandPath}} help flags{{end}}", 1)
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		root.SetUsageTemplate(short)
		if wantsAll(cmd) {
			root.SetUsageTemplate(template)
		}
		help(cmd, args)
	})
}

// wantsAll reports whether --help-all was given.
func wantsAll(cmd *cobra.Command) bool {
	flag := cmd.Flag(helpAll)
	return flag != nil && flag.Value.String() == "true"
}

func newFlagGroup() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	return flags
}
