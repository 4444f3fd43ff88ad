package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/plan"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestPreload(t *testing.T) {
	for name, test := range map[string]struct {
		command []string
		script  string
		change  func(r *spec.Request)
		// interpreter is what waits; without one unfit is a part of the reason.
		interpreter []string
		unfit       string
	}{
		"script":               {script: "/data/train.py", interpreter: []string{"python3"}},
		"command":              {command: []string{"python3", "-c", "1"}, interpreter: []string{"python3"}},
		"module":               {command: []string{"python", "-m", "pip"}, interpreter: []string{"python"}},
		"version":              {command: []string{"/usr/bin/python3.11", "/work/input/a.py"}, interpreter: []string{"/usr/bin/python3.11"}},
		"flags":                {command: []string{"python3", "-u", "-OB", "a.py", "-x"}, interpreter: []string{"python3", "-u", "-OB"}},
		"other command":        {command: []string{"ls"}, unfit: "not python3"},
		"pypy":                 {command: []string{"pypy3", "a.py"}, unfit: "not python3"},
		"relative":             {command: []string{"./python3", "a.py"}, unfit: "a file of the run"},
		"of the input":         {command: []string{"/work/input/bin/python3", "a.py"}, unfit: "a file of the run"},
		"of a mount":           {command: []string{"/usr/../host/venv/bin/python3", "a.py"}, unfit: "a file of the run"},
		"isolated":             {command: []string{"python3", "-I", "a.py"}, unfit: `the flag "-I"`},
		"with a value":         {command: []string{"python3", "-X", "dev", "a.py"}, unfit: `the flag "-X"`},
		"joined":               {command: []string{"python3", "-c1"}, unfit: `the flag "-c1"`},
		"no flags":             {command: []string{"python3", "--", "a.py"}, unfit: `the flag "--"`},
		"stdin":                {command: []string{"python3", "-"}, unfit: "stdin"},
		"nothing":              {command: []string{"python3"}, unfit: "stdin"},
		"no program":           {command: []string{"python3", "-m"}, unfit: "no program"},
		"home of the run":      {script: "/a.py", change: func(r *spec.Request) { r.Env = map[string]string{"HOME": "/work/input"} }, unfit: "sets HOME"},
		"path of the run":      {script: "/a.py", change: func(r *spec.Request) { r.Env = map[string]string{"PATH": "/work/input"} }, unfit: "sets PATH"},
		"home, in a secret":    {script: "/a.py", change: func(r *spec.Request) { r.Secrets = []spec.Secret{{Name: "HOME"}} }, unfit: "sets HOME"},
		"modules of the run":   {script: "/a.py", change: func(r *spec.Request) { r.Env = map[string]string{"PYTHONPATH": "lib"} }, unfit: "sets PYTHONPATH"},
		"modules, in a secret": {script: "/a.py", change: func(r *spec.Request) { r.Secrets = []spec.Secret{{Name: "PYTHONHOME"}} }, unfit: "sets PYTHONHOME"},
		"a library":            {script: "/a.py", change: func(r *spec.Request) { r.Env = map[string]string{"LD_PRELOAD": "libx.so"} }, unfit: "sets LD_PRELOAD"},
		"no code":              {script: "/a.py", change: func(r *spec.Request) { r.Env = map[string]string{"PYTHONHASHSEED": "7"} }, interpreter: []string{"python3"}},
		"code of the run":      {script: "/a.py", change: func(r *spec.Request) { r.Env = map[string]string{"OPENSSL_CONF": "/work/input/a.cnf"} }, unfit: "OPENSSL_CONF of the request names a file"},
		"relative code":        {script: "/a.py", change: func(r *spec.Request) { r.Env = map[string]string{"A": "1", "GCONV_PATH": "./input/."} }, unfit: "GCONV_PATH of the request names a file"},
		"its script":           {script: "/a.py", change: func(r *spec.Request) { r.Script, r.Env = "/a.py", map[string]string{"MATPLOTLIBRC": "a.py"} }, unfit: "MATPLOTLIBRC"},
		"other directories":    {script: "/a.py", change: func(r *spec.Request) { r.Env = map[string]string{"HF_HOME": "/tmp/hf", "URL": "https://a.example/x"} }, interpreter: []string{"python3"}},
		"fake clock": {script: "/a.py", change: func(r *spec.Request) { r.FakeClock = &spec.FakeClock{Library: "/l", At: time.Unix(1, 0)} },
			unfit: "clock"},
	} {
		t.Run(name, func(t *testing.T) {
			req := spec.Request{Image: "debian", Command: test.command, Preload: []string{"numpy", "scipy.stats"}, Stdin: true, NoFork: true}
			if test.change != nil {
				test.change(&req)
			}
			got, err := plan.Plan(req, spec.Layout{Script: test.script}, policy.Policy{}, spec.Host{})
			require.NoError(t, err)
			p := got.Class.Preload
			require.Equal(t, []string{"numpy", "scipy.stats"}, p.Modules)
			require.Equal(t, test.unfit == "", p.Fits())
			require.Contains(t, p.Unfit, test.unfit)
			if p.Fits() {
				require.Equal(t, test.interpreter, p.Interpreter)
				require.True(t, p.Stdin && p.NoFork)
			}
		})
	}
}

// TestPreloadOfAClass: what an interpreter is started with makes a class; what comes with the job
// does not, and without preload nothing changes.
func TestPreloadOfAClass(t *testing.T) {
	class := func(change func(r *spec.Request)) string {
		req := spec.Request{Image: "debian", Command: []string{"python3", "-c", "1"}, Preload: []string{"json"}, Env: map[string]string{"A": "1"}}
		change(&req)
		got, err := plan.Plan(req, spec.Layout{}, policy.Policy{}, spec.Host{})
		require.NoError(t, err)
		return engine.ClassHash(got.Class)
	}
	want := class(func(*spec.Request) {})
	for name, change := range map[string]func(r *spec.Request){
		"program":   func(r *spec.Request) { r.Command[2] = "2" },
		"arguments": func(r *spec.Request) { r.Args = []string{"a"} },
		"secret":    func(r *spec.Request) { r.Secrets = []spec.Secret{{Name: "KEY"}} },
		"limits":    func(r *spec.Request) { r.Limits.Timeout, r.Limits.Disk = time.Minute, policy.MiB },
	} {
		require.Equal(t, want, class(change), name)
	}
	for name, change := range map[string]func(r *spec.Request){
		"modules":     func(r *spec.Request) { r.Preload = []string{"json", "decimal"} },
		"none":        func(r *spec.Request) { r.Preload = nil },
		"interpreter": func(r *spec.Request) { r.Command[0] = "/usr/bin/python3" },
		"flags":       func(r *spec.Request) { r.Command = []string{"python3", "-O", "-c", "1"} },
		"environment": func(r *spec.Request) { r.Env["A"] = "2" },
		"stdin":       func(r *spec.Request) { r.Stdin = true },
		"no fork":     func(r *spec.Request) { r.NoFork = true },
	} {
		require.NotEqual(t, want, class(change), name)
	}
}

func TestPreloadIsRefused(t *testing.T) {
	many := make([]string, 33)
	for i := range many {
		many[i] = "json"
	}
	for name, test := range map[string]struct {
		modules []string
		rule    string
	}{
		"empty":        {[]string{"json", ""}, "is not the name of a Python module"},
		"code":         {[]string{"os; os.system('x')"}, "is not the name of a Python module"},
		"comma":        {[]string{"a,b"}, "is not the name of a Python module"},
		"a dot":        {[]string{"a..b"}, "is not the name of a Python module"},
		"a file":       {[]string{"a/b"}, "is not the name of a Python module"},
		"not ASCII":    {[]string{"é"}, "is not the name of a Python module"},
		"long":         {[]string{strings.Repeat("a", 129)}, "is not the name of a Python module"},
		"many":         {many, "must be at most 32"},
		"not a module": {[]string{"-c"}, "is not the name of a Python module"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.Plan(spec.Request{Image: "debian", Command: []string{"ls"}, Preload: test.modules}, spec.Layout{}, policy.Policy{}, spec.Host{})
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, "preload", field.Field)
			require.Contains(t, field.Rule, test.rule)
		})
	}
}
