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

// around has scripts and a link in the directory data, a script tool.pl, helper.py, data.csv and "a b.csv" beside the script, and train.csv and lib.py in the input.
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
		linkOut: func(dir, below string) (string, string) {
			if dir == "data" && below == "away/x.csv" {
				return "away", "/srv/x"
			}
			return "", ""
		},
		begin: func(path string) []byte {
			return []byte(map[string]string{
				"data/ruby": "#!/usr/bin/env ruby\n", "data/returns": "#!/bin/sh\r\necho\r\n", "tool.pl": "#!/usr/bin/perl -w\n",
			}[path])
		},
	}
}

func TestHints(t *testing.T) {
	script := sandbox.Request{Script: "src/main.py"}
	missing := "FileNotFoundError: [Errno 2] No such file or directory: "
	alias := sandbox.Request{Script: "main.py", Input: "data", Aliases: []sandbox.Alias{{Name: "/kaggle/input", Target: "input"}}}
	linked := []string{"data/away is a symbolic link to /srv/x", "cp -rL data NEW"}
	cross, busy := "OSError: [Errno 18] Invalid cross-device link: ", "OSError: [Errno 16] Device or resource busy: "
	eof := "EOFError: EOF when reading a line"
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
		"no space in shared memory":          {"OSError: [Errno 28] No space left on device: '/dev/shm/x'", script, []string{"/dev/shm, which has 8 MiB here", "--shm-size", "--memory"}},
		"no space for open shared memory":    {"File \"main.py\", line 1\n  open('/dev/shm/x', 'w').write('x')\nOSError: [Errno 28] No space left on device", script, []string{"--shm-size"}},
		"no space for a semaphore":           {"    sl = self._semlock = _multiprocessing.SemLock(\nOSError: [Errno 28] No space left on device", script, []string{"--shm-size"}},
		"no shared memory of a loader":       {"RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.", script, []string{"--shm-size"}},
		"no shared memory of PyTorch":        {"RuntimeError: unable to allocate shared memory(shm) for file </torch_7_1_0>: No space left on device (28)", script, []string{"--shm-size"}},
		"a bus error of a shell":             {"sh: line 1: 7 Bus error (core dumped)", script, []string{"--shm-size"}},
		"a rename into final":                {cross + "'/work/a' -> 'final/a'", script, []string{"shutil.move", "write directly to ./final"}},
		"a rename into a directory of final": {cross + "'a' -> '/work/final/b/a'", script, []string{"shutil.move", "write directly to ./final/b"}},
		"a rename into /tmp":                 {cross + "'a' -> '/tmp/a'", script, []string{"shutil.move", "write directly to /tmp"}},
		"a rename of another language":       {"rename /tmp/a final/a: invalid cross-device link", script, []string{"write directly to ./final"}},
		"the removal of final":               {busy + "'final'", script, []string{"./final is mounted", "remove what is in it"}},
		"the removal of an alias of final":   {"rm: cannot remove '/work/final/': Device or resource busy", script, []string{"./final is mounted"}},
		"a rename of final":                  {busy + "'./final' -> 'old'", script, []string{"./final is mounted"}},
		"the removal of the input":           {busy + "'/work/input'", script, []string{"/work/input is mounted read-only"}},
		"the removal of a mount":             {busy + "'tool.pl'", sandbox.Request{Mounts: []sandbox.Mount{{Source: "tool.pl", Target: "tool.pl"}}}, []string{"tool.pl is mounted read-only"}},
		"the removal of /tmp":                {busy + "'/tmp'", script, []string{"/tmp is mounted"}},
		"a removal without permission":       {stderr: "rm: cannot remove 'final': Permission denied", req: script},
		"something else is busy":             {stderr: busy + "'/dev/nvidia0'", req: script},
		"no stdin":                           {eof, script, []string{"add --interactive", "< FILE"}},
		"the end of stdin":                   {eof, sandbox.Request{Script: "main.py", Stdin: true}, []string{"reads more lines than it got"}},
		"a script of stdin":                  {eof, sandbox.Request{Script: "stdin.py", ScriptFrom: "-"}, []string{"save the script as a file"}},
		"a link out of the input":            {missing + "'input/away/x.csv'", sandbox.Request{Script: "main.py", Input: "data"}, linked},
		"an absolute path of a link":         {missing + "'/work/input/away/x.csv'", sandbox.Request{Command: []string{"python3"}, Input: "data"}, linked},
		"a link behind an alias":             {missing + "'/kaggle/input/away/x.csv'", alias, linked},
		"a link in a mount":                  {missing + "'more/away/x.csv'", sandbox.Request{Mounts: []sandbox.Mount{{Source: "data", Target: "more"}}}, linked},
		"an interpreter of env":              {"/usr/bin/env: 'ruby': No such file or directory", script, []string{"ruby is not in the image debian", "--image", "--debian ruby"}},
		"an interpreter of env in UTF-8":     {"env: ‘Rscript’: No such file or directory", script, []string{"Rscript is not in the image debian", "--debian r-base-core"}},
		"a carriage return of env":           {"/usr/bin/env: 'python3\\r': No such file or directory", script, []string{"ends with a carriage return", "tr -d '\\r'"}},
		"a command of sh":                    {"/work/job.sh: 2: ruby: not found", script, []string{"ruby is not in the image debian"}},
		"a command of bash":                  {"x.sh: line 2: node: command not found", script, []string{"node is not in the image debian", "--debian nodejs"}},
		"a bad interpreter":                  {"bash: line 1: ./tool: /usr/bin/ruby: bad interpreter: No such file or directory", script, []string{"/usr/bin/ruby is not in the image debian", "--debian ruby"}},
		"a script of the input in sh":        {"sh: 1: input/ruby: not found", sandbox.Request{Input: "data"}, []string{"ruby is not in the image debian"}},
		"a file that Python cannot execute":  {"  in _execute_child\nPermissionError: [Errno 13] Permission denied: 'input/run.sh'", script, []string{"input/run.sh cannot be executed", "sh input/run.sh", "chmod +x"}},
		"a command or a directory of Python": {"  in _execute_child\n" + missing + "'build'", script, []string{"if build is the directory cwd: it does not exist"}},
		"a command of Python":                {"  in _execute_child\n    raise child_exception_type(errno_num, err_msg, err_filename)\n" + missing + "'git'", script, []string{"git is not in the image debian", "--debian git"}},
		"a file that is not there for sh":    {"sh: 1: ./tool: not found", script, []string{"./tool is not there", "--mount"}},
		"something is not found":             {stderr: "Error: user: not found", req: script},
		"a mark in front of a first line":    {"/work/input/x: 1: " + mark + "#!/bin/sh: not found", script, []string{"/work/input/x begins with a byte order mark", "tail -c +4 FILE > NEW"}},
		"a mark in front of Python":          {"./x: 1: " + mark + "#!/usr/bin/python3: not found\n./x: 2: import: not found", script, []string{"./x begins with a byte order mark"}},
		"a mark in the input":                {"input/x: line 1: " + mark + "#!/bin/sh: No such file or directory", sandbox.Request{Input: "my data"}, []string{"input/x begins with a byte order mark", "tail -c +4 'my data/x' > NEW"}},
		"a script of the input in bash":      {"bash: line 1: input/ruby: cannot execute: required file not found", sandbox.Request{Input: "data"}, []string{"ruby is not in the image debian"}},
		"no GPU":                             {"RuntimeError: No CUDA GPUs are available", script, []string{"--gpus 1"}},
		"a GPU":                              {stderr: "RuntimeError: No CUDA GPUs are available", req: sandbox.Request{Script: "x", GPUs: "all"}},
		"controls":                           {stderr: missing + "'\x1b[2J'", req: script},
	} {
		t.Run(name, func(t *testing.T) {
			res := &result.Result{Status: result.StatusExited, ExitCode: 1, IsError: true, Stderr: test.stderr + "\n"}
			res.Image.Name, res.Enforced.ShmBytes = "debian", 8<<20
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

// TestHintsWithoutOutput: a command that was not executed, and a signal, have hints although nothing was printed.
func TestHintsWithoutOutput(t *testing.T) {
	command := func(words ...string) sandbox.Request { return sandbox.Request{Command: words, Input: "data"} }
	perl := sandbox.Request{Command: []string{"./tool.pl"}, Mounts: []sandbox.Mount{{Source: "tool.pl", Target: "tool.pl"}}}
	for name, test := range map[string]struct {
		status result.Status
		code   int
		req    sandbox.Request
		want   []string
	}{
		"an interpreter":                   {result.StatusStartFailed, 127, sandbox.Request{Script: "a.rb", Interpreter: []string{"ruby"}}, []string{"ruby is not in the image debian", "--debian ruby"}},
		"an interpreter by its path":       {result.StatusStartFailed, 127, sandbox.Request{Script: "a.R", Interpreter: []string{"/usr/bin/Rscript", "-e"}}, []string{"/usr/bin/Rscript is not in the image debian", "--debian r-base-core"}},
		"Python":                           {result.StatusStartFailed, 127, sandbox.Request{Script: "a.py"}, []string{"python3 is not in the image debian"}},
		"a command":                        {result.StatusStartFailed, 127, command("git", "log"), []string{"git is not in the image debian", "--debian git"}},
		"a script of the input":            {result.StatusStartFailed, 127, command("input/ruby"), []string{"ruby is not in the image debian"}},
		"a script of a mount":              {result.StatusStartFailed, 127, perl, []string{"/usr/bin/perl is not in the image debian", "--debian perl"}},
		"a script with carriage returns":   {result.StatusStartFailed, 127, command("/work/input/returns"), []string{"the first line of /work/input/returns ends with a carriage return", "tr -d '\\r' < data/returns > NEW"}},
		"a path of no file":                {result.StatusStartFailed, 127, command("./run"), []string{"./run is not there", "--input and --mount"}},
		"a program of the input":           {result.StatusStartFailed, 127, command("input/binary"), nil},
		"a command that is not executable": {result.StatusStartFailed, 126, command("/etc/passwd"), nil},
		"another failed start":             {result.StatusStartFailed, -1, command("true"), nil},
		"a bus error":                      {result.StatusSignaled, 135, command("true"), []string{"/dev/shm, which has 8 MiB here", "--shm-size"}},
		"another signal":                   {result.StatusSignaled, 139, command("true"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			res := &result.Result{Status: test.status, ExitCode: test.code, IsError: true}
			res.Image.Name, res.Enforced.ShmBytes = "debian", 8<<20
			if test.status == result.StatusSignaled {
				res.Signal = test.code - 128
			}
			got := hints(res, test.req, around(t))
			require.Len(t, got, min(1, len(test.want)), "%v", got)
			for _, part := range test.want {
				require.Contains(t, got[0], part)
			}
		})
	}
}

// TestLinkOut: only a link that leads out of the directory is found, also behind one that does not.
func TestLinkOut(t *testing.T) {
	dir := treetest.Dir(t, map[string]string{"in/sub/file": "", "out": ""})
	for link, target := range map[string]string{
		"near": "sub/file", "up": "../out", "far": "/etc", "sub/up": "../../out", "sub/near": "../near", "deep": "sub/up", "around": "../in/sub/file", "loop": "loop",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, "in", link)))
	}
	for below, want := range map[string][2]string{
		"sub/file": {}, "near": {}, "sub/near": {}, "missing/x": {}, "loop": {}, ".": {}, "up": {"up", "../out"}, "far/passwd": {"far", "/etc"},
		"sub/up": {"sub/up", "../../out"}, "deep": {"sub/up", "../../out"}, "around": {"around", "../in/sub/file"},
	} {
		link, target := linkOut(filepath.Join(dir, "in"), below)
		require.Equal(t, want, [2]string{link, target}, below)
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
