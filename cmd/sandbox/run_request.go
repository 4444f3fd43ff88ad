package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/go-units"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// runFlags are the flags of `run` that are no settings: they concern one run.
type runFlags struct {
	env, envFiles, labels, ulimits []string
	// egress, allowHosts and addHosts are what the program reaches.
	egress                    string
	allowHosts, addHosts      []string
	id, name, input, final    string
	interactive, keep, dryRun bool
}

// request turns a command line into a Request. dash is the number of arguments
// before "--", -1 without one.
func (f runFlags) request(s settings, environ, args []string, dash int) (sandbox.Request, error) {
	req := s.request()
	req.ID, req.Name, req.Input, req.Final, req.Keep = f.id, f.name, f.input, f.final, f.keep
	req.Labels = map[string]string{}
	err := program(&req, args, dash)
	if err != nil {
		return sandbox.Request{}, err
	}
	if req.Env, err = environment(f.env, f.envFiles, environ, "sandbox run"); err != nil {
		return sandbox.Request{}, err
	}
	if req.Egress, err = egressOf(f.egress, f.allowHosts, f.addHosts); err != nil {
		return sandbox.Request{}, err
	}
	for _, label := range f.labels {
		name, text, _ := strings.Cut(label, "=")
		req.Labels[name] = text
	}
	for _, text := range f.ulimits {
		limit, err := units.ParseUlimit(text)
		if err != nil {
			return sandbox.Request{}, usagef("sandbox run", "--ulimit %q: must be NAME=SOFT[:HARD], such as nofile=1024", text)
		}
		req.Ulimits = append(req.Ulimits, spec.Ulimit{Name: limit.Name, Soft: limit.Soft, Hard: limit.Hard})
	}
	return req, nil
}

// environment is that of the flags --env-file and --env of a command; the latter win.
func environment(pairs, files, environ []string, command string) (map[string]string, error) {
	env := map[string]string{}
	for _, file := range files {
		if err := readEnvFile(file, environ, env); err != nil {
			return nil, err
		}
	}
	for _, pair := range pairs {
		if err := addEnv(pair, environ, env); err != nil {
			return nil, usagef(command, "--env: %s", err)
		}
	}
	return env, nil
}

// program decides what to run: a script with its arguments, or, after "--", a
// command of the image.
func program(req *sandbox.Request, args []string, dash int) error {
	switch {
	case len(args) == 0 && dash < 0:
		return usagef("sandbox run", "run: nothing to run: give a script or, after --, a command")
	case len(args) == 0 || args[0] == "":
		return usagef("sandbox run", "run: the command is empty")
	case dash == 0:
		req.Command = args
	case filepath.Ext(args[0]) == ".py" || isFolder(args[0]):
		// A folder is refused where every script is checked.
		req.Script, req.Args = args[0], args[1:]
	default:
		return &usageError{fmt.Sprintf("run: %q is not a Python script (*.py)", args[0]), noScriptHint(args)}
	}
	return nil
}

// noScriptHint is what to try about something to run that is no script. A file of
// ours is not in the image, so that "--" alone would not help it.
func noScriptHint(args []string) string {
	name := args[0]
	switch ext := strings.ToLower(filepath.Ext(name)); {
	case ext == ".py":
		return "the name of a Python script ends in .py, in small letters"
	case isFile(name) && !filepath.IsAbs(name), slices.Contains([]string{".sh", ".bash", ".r", ".jl", ".js", ".pl", ".rb"}, ext):
		return "the file is not in the image: put it into a folder and run it from there, as in: " +
			"sandbox run --input FOLDER -- sh input/" + filepath.Base(name)
	}
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = shellWord(arg)
	}
	return "to run a command of the image: sandbox run -- " + strings.Join(quoted, " ")
}

// shellWord is text as one word of a shell.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_./=:,+@%", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
