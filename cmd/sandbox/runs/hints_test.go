package runs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// around has helper.py, data.csv and "a b.csv" beside the script, and train.csv and lib.py in the input.
func around(t *testing.T) surroundings {
	t.Helper()
	catalog, err := images.LoadCatalog(configs.Images(), "images.yaml")
	require.NoError(t, err)
	return surroundings{
		beside: func(name string) (string, bool) {
			return "src/" + name, slices.Contains([]string{"helper.py", "data.csv", "a b.csv", "torch", "input/x.csv"}, name)
		},
		inInput:   func(name string) bool { return slices.Contains([]string{"train.csv", "lib.py"}, name) },
		imageWith: func(names []string) string { return imageWith(catalog, lock.Lock{}, names, "debian") },
	}
}

func TestHints(t *testing.T) {
	script := sandbox.Request{Script: "src/main.py"}
	missing := "FileNotFoundError: [Errno 2] No such file or directory: "
	alias := sandbox.Request{Script: "main.py", Aliases: []sandbox.Alias{{Name: "/kaggle/input", Target: "input"}}}
	for name, test := range map[string]struct {
		stderr string
		req    sandbox.Request
		want   []string
	}{
		"nothing known":                      {stderr: "ValueError: x"},
		"a module beside":                    {"Traceback\nModuleNotFoundError: No module named 'helper'", script, []string{"helper.py is beside the script", "add --mount src/helper.py:helper.py"}},
		"a module of a package":              {"ModuleNotFoundError: No module named 'helper.part'", script, []string{"add --mount src/helper.py:helper.py"}},
		"a package beside":                   {"ModuleNotFoundError: No module named 'torch'", script, []string{"add --mount src/torch:torch"}},
		"a module in the input":              {"ModuleNotFoundError: No module named 'lib'", script, []string{"add --alias lib.py=input/lib.py"}},
		"a module of an image":               {"ModuleNotFoundError: No module named 'torch'", sandbox.Request{Command: []string{"python3"}}, []string{"torch is in the image cuda: --image cuda"}},
		"a module of none":                   {"ModuleNotFoundError: No module named 'bs4'", script, []string{"have beautifulsoup4", "sandbox image build NAME --pip requirements.txt"}},
		"the last one":                       {"ModuleNotFoundError: No module named 'json5'\nModuleNotFoundError: No module named 'helper'", script, []string{"helper.py"}},
		"a file in a directory input beside": {missing + "'input/x.csv'", script, []string{"this run has no input directory: add --input src/input"}},
		"a file beside":                      {missing + "'data.csv'", script, []string{"add --mount src/data.csv:data.csv", "open input/data.csv"}},
		"a file of a shell's word":           {missing + "'./a b.csv'", script, []string{"add --mount 'src/a b.csv:a b.csv'"}},
		"a file in the input":                {missing + "'train.csv'", script, []string{"open input/train.csv, or add --alias train.csv=input/train.csv"}},
		"a file of nobody":                   {stderr: missing + "'x.csv'", req: script},
		"a file above":                       {stderr: missing + "'../data.csv'", req: script},
		"an absolute file":                   {stderr: missing + "'/data.csv'", req: script},
		"a command":                          {stderr: missing + "'data.csv'", req: sandbox.Request{Command: []string{"sh"}}},
		"no network":                         {"socket.gaierror: [Errno -3] Temporary failure in name resolution", script, []string{"--allow-host HOST"}},
		"a network":                          {stderr: "Temporary failure in name resolution", req: sandbox.Request{Script: "x", Egress: &policy.Egress{}}},
		"a network of the engine":            {stderr: "Temporary failure in name resolution", req: sandbox.Request{Script: "x", Network: "bridge"}},
		"a read-only root":                   {"OSError: [Errno 30] Read-only file system: '/etc/x'", script, []string{"can write only to ./final"}},
		"no permission":                      {"PermissionError: [Errno 13] Permission denied: '/usr/x'", script, []string{"can write only to ./final"}},
		"the input":                          {"OSError: [Errno 30] Read-only file system: './input/x'", script, []string{"./input is read-only"}},
		"no space":                           {"OSError: [Errno 28] No space left on device", script, []string{"--scratch-size and --tmp-size"}},
		"no space in /tmp":                   {"OSError: [Errno 28] No space left on device: '/tmp/x'", script, []string{"--tmp-size"}},
		"no space in final":                  {"OSError: [Errno 28] No space left on device: 'final/x'", script, []string{"--disk"}},
		"no space beside aliases":            {"OSError: [Errno 28] No space left on device: '/kaggle/x'", alias, []string{"/kaggle has room for aliases only"}},
		"no GPU":                             {"RuntimeError: No CUDA GPUs are available", script, []string{"--gpus 1"}},
		"a GPU":                              {stderr: "RuntimeError: No CUDA GPUs are available", req: sandbox.Request{Script: "x", GPUs: "all"}},
		"controls":                           {stderr: missing + "'\x1b[2J'", req: script},
	} {
		t.Run(name, func(t *testing.T) {
			res := &result.Result{Status: result.StatusExited, ExitCode: 1, IsError: true, Stderr: test.stderr + "\n"}
			got := hints(res, test.req, around(t))
			if test.want == nil {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			for _, part := range test.want {
				require.Contains(t, got[0], part)
			}
			// A program that ended well, or that a limit ended, has no hints.
			res.IsError = false
			require.Empty(t, hints(res, test.req, around(t)))
			res.IsError, res.Status = true, result.StatusTimedOut
			require.Empty(t, hints(res, test.req, around(t)))
		})
	}
}

// TestHintsAreHarmless: what a program prints cannot drive the terminal through a hint.
func TestHintsAreHarmless(t *testing.T) {
	all := surroundings{
		beside: func(name string) (string, bool) { return name, true }, inInput: func(string) bool { return false },
		imageWith: func([]string) string { return "" },
	}
	res := &result.Result{Status: result.StatusExited, IsError: true, Stderr: strings.Repeat("x", 1<<20) + "\nFileNotFoundError: [Errno 2] No such file or directory: 'a\x1b[2J\u202eb'\n"}
	got := hints(res, sandbox.Request{Script: "x.py"}, all)
	require.Len(t, got, 1)
	require.NotContains(t, got[0], "\x1b")
	require.NotContains(t, got[0], "\u202e")
}

func TestImageWith(t *testing.T) {
	catalog, err := images.LoadCatalog(configs.Images(), "images.yaml")
	require.NoError(t, err)
	list, err := packages.Parse("deb python3-yaml 6.0 amd64\npython lightgbm 4.6\n")
	require.NoError(t, err)
	held := lock.Lock{}.With(lock.Entry{Name: "mine:1", Packages: list})
	for module, want := range map[string]string{"torch": "cuda", "pytest": "cuda", "numpy": "cuda", "sklearn": "cuda", "yaml": "mine:1", "lightgbm": "mine:1", "nothing": ""} {
		require.Equal(t, want, imageWith(catalog, held, packagesOf(module), "debian"), module)
	}
	require.Equal(t, "debian", imageWith(catalog, held, packagesOf("sklearn"), "cuda"))
}

func TestInterpreterOf(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string][]string{
		"#!/bin/sh\necho\n":              {"/bin/sh"},
		"#! /bin/sh -e \r\n":             {"/bin/sh", "-e"},
		"#!/usr/bin/env python3\n":       {"python3"},
		"#!/usr/bin/env -S python3 -u\n": {"/usr/bin/env", "-S python3 -u"},
		"#!/usr/bin/env A=1\n":           {"/usr/bin/env", "A=1"},
		"print(1)\n":                     nil,
		"#!\n":                           nil,
		"#!/bin/sh":                      nil,
		"":                               nil,
		"#!/" + strings.Repeat("x", 300): nil,
	} {
		require.Equal(t, want, interpreterOf(treetest.File(t, filepath.Join(dir, "script"), text)), "%q", text)
	}
	require.Nil(t, interpreterOf(dir))
	require.Nil(t, interpreterOf(filepath.Join(dir, "missing")))
}

func TestNearScript(t *testing.T) {
	t.Chdir(t.TempDir())
	treetest.File(t, "hello.py", "")
	treetest.File(t, "sub/train.py", "")
	for path, want := range map[string]string{"helo.py": "hello.py", "hello.py": "", "unlike.py": "", "sub/trian.py": "sub/train.py", "missing/x.py": "", "": ""} {
		require.Equal(t, want, nearScript(path), path)
	}
}

func TestMisplacedFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	treetest.File(t, "main.py", "import argparse; p.add_argument('--input')\n")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"main.py", "--memory", "8g"}, "--memory"},
		{[]string{"main.py", "x", "--timeout=5m"}, "--timeout"},
		{[]string{"main.py", "--input", "x"}, ""},
		{[]string{"main.py", "--epochs", "3"}, ""},
		{[]string{"main.py", "--", "--memory", "8g"}, ""},
		{[]string{"--", "main.py", "--memory", "8g"}, ""},
		{[]string{"--memory", "1g", "main.py"}, ""},
	} {
		f, req := flagsOf(t, test.args...)
		require.Equal(t, test.want, f.misplaced(req), "%v", test.args)
	}
}

// TestScriptOfStdin: a script from stdin is a file for as long as its run.
func TestScriptOfStdin(t *testing.T) {
	state := t.TempDir()
	path, clean, err := scriptOfStdin(settings.Settings{StateDir: state}, strings.NewReader("print(1)"))
	require.NoError(t, err)
	require.True(t, fsx.Within(path, fsx.RealPath(state)), path)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "print(1)", string(text))
	clean()
	require.NoDirExists(t, filepath.Dir(path))
}
