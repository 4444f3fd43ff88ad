package cli

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// MountFlags is --mount: further files and directories that the programs of a command read.
type MountFlags struct{ texts []string }

// Register adds the flag to a command.
func (f *MountFlags) Register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.texts, "mount", nil, "`SOURCE:TARGET`: file or directory that the program finds, read-only, at TARGET (below /work, /repo or /host; relative: to /work); the last colon ends SOURCE")
}

// Read returns the mounts. All problems are reported at once.
func (f *MountFlags) Read(a *App) ([]spec.Mount, error) {
	var mounts []spec.Mount
	var errs []error
	for _, text := range f.texts {
		mount, problem := parseMount(text)
		if problem != "" {
			errs = append(errs, Usagef(a.Command, "--mount %.200q: %s", text, problem))
			continue
		}
		mounts = append(mounts, mount)
	}
	return mounts, errors.Join(errs...)
}

// parseMount reads SOURCE:TARGET or SOURCE:TARGET:ro, and says what is wrong with any other text.
func parseMount(text string) (m spec.Mount, problem string) {
	text = strings.TrimSuffix(text, ":ro")
	if strings.HasSuffix(text, ":rw") {
		return m, "a mount is read-only; a program writes to ./final"
	}
	// A target has no colon, a source may.
	at := strings.LastIndexByte(text, ':')
	if at <= 0 || at == len(text)-1 {
		return m, "must be SOURCE:TARGET, such as data:/host/data"
	}
	m = spec.Mount{Source: text[:at], Target: text[at+1:]}
	for _, dir := range []string{spec.WorkDir, spec.RepoDir, spec.HostDir} {
		if strings.Contains(m.Source, ":"+dir+"/") {
			return m, "a target has no colon: the last colon ends SOURCE"
		}
	}
	if !strings.HasPrefix(m.Target, "/") {
		m.Target = spec.WorkDir + "/" + strings.TrimPrefix(m.Target, "./")
	}
	m.Target = strings.TrimRight(m.Target, "/")
	return m, ""
}

// AliasFlags is --alias: further names of files in ./input and ./final.
type AliasFlags struct{ texts []string }

// Register adds the flag to a command.
func (f *AliasFlags) Register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.texts, "alias", nil, "`NAME=TARGET`: name under which the program also finds TARGET, which is input, final or below (data=input, submission.csv=final/submission.csv, /kaggle/input=input)")
}

// Read returns the aliases. All problems of their form are reported at once; the plan checks the
// paths.
func (f *AliasFlags) Read(a *App) ([]spec.Alias, error) {
	var aliases []spec.Alias
	var errs []error
	for _, text := range f.texts {
		name, target, ok := strings.Cut(text, "=")
		if !ok || name == "" || target == "" {
			errs = append(errs, Usagef(a.Command, "--alias %.200q: must be NAME=TARGET, such as data=input", text))
			continue
		}
		aliases = append(aliases, spec.Alias{Name: strings.TrimPrefix(name, "./"), Target: strings.TrimPrefix(target, "./")})
	}
	return aliases, errors.Join(errs...)
}
