package runs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Every flag of `run` reaches the field of the request that it names.
func TestFlagsToRequest(t *testing.T) {
	dir := t.TempDir()
	envFile := treetest.File(t, filepath.Join(dir, "vars"), "A=file\nB=file\n")
	got := requestOf(t, []string{"HOME_MADE=yes"},
		"--image", "python", "-m", "512m", "--cpus", "1.5", "--gpus", "device=0,1", "--gpu-driver", "cdi", "--gpu-share", "--gpu-wait", "2m", "--env-file", envFile,
		"-e", "A=flag", "--env", "HOME_MADE", "-e", "ABSENT", "-e", "EMPTY=", "--network", "none", "--runtime", "runsc",
		"--shm-size", "64m", "--pids-limit", "100", "-u", "1000:1000", "--transfer", "copy", "--ulimit", "nofile=64:128", "--ulimit", "nproc=9",
		"-l", "team=ml", "--label", "bare", "--name", "first", "--timeout", "90", "--soft-timeout", "80", "--soft-signal", "SIGINT", "--grace", "2s", "--input", "data",
		"--final", "out", "--keep", "--tmp-size", "1m", "--scratch-size", "2m", "--disk", "3m", "--output-limit", "4m",
		"--mount", "data/a:/host/a:ro", "--mount", "b:c/b/", "--alias", "data=./input", "--alias", "./x=final/x",
		"--id", "run-1", "train.py", "--epochs", "3", "--", "-q")
	require.Equal(t, sandbox.Request{
		ID: "run-1", Name: "first", Labels: map[string]string{"team": "ml", "bare": ""},
		Image: "python", Script: "train.py", Args: []string{"--epochs", "3", "--", "-q"},
		Input: "data", Final: "out",
		Mounts:  []spec.Mount{{Source: "data/a", Target: "/host/a"}, {Source: "b", Target: "/work/c/b"}},
		Aliases: []spec.Alias{{Name: "data", Target: "input"}, {Name: "x", Target: "final/x"}},
		Env:     map[string]string{"A": "flag", "B": "file", "HOME_MADE": "yes", "EMPTY": ""},
		User:    "1000:1000", Network: "none", Runtime: "runsc", GPUs: "device=0,1",
		SoftSignal: "SIGINT",
		GPUDriver:  "cdi", GPUShare: true, GPUWait: 2 * time.Minute,
		Limits: policy.Limits{
			Timeout: 90 * time.Second, SoftTimeout: 80 * time.Second, Grace: 2 * time.Second, Memory: 512 * policy.MiB, CPUs: 1.5, PIDs: 100,
			Shm: 64 * policy.MiB, Tmp: policy.MiB, Scratch: 2 * policy.MiB, Disk: 3 * policy.MiB, Output: 4 * policy.MiB,
		},
		Ulimits:  []spec.Ulimit{{Name: "nofile", Soft: 64, Hard: 128}, {Name: "nproc", Soft: 9, Hard: 9}},
		Transfer: "copy", Keep: true,
	}, got)
}

func TestCommandToRequest(t *testing.T) {
	got := requestOf(t, nil, "-q", "--", "python3", "-c", "print(1)", "--", "--json")
	require.Equal(t, []string{"python3", "-c", "print(1)", "--", "--json"}, got.Command)
	require.Empty(t, got.Script)
}

func TestWrongUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("folder", 0o755))
	treetest.File(t, "notes.txt", "notes\n")
	tests := map[string]struct {
		args []string
		want string
	}{
		"nothing after --":       {[]string{"--"}, "the command is empty"},
		"empty command":          {[]string{"--", ""}, "the command is empty"},
		"env without a name":     {[]string{"-e", "=x", "a.py"}, "must be NAME=VALUE or NAME"},
		"ulimit":                 {[]string{"--ulimit", "nofile", "a.py"}, `--ulimit "nofile": must be NAME=SOFT[:HARD]`},
		"mount without a source": {[]string{"--mount", ":a", "a.py"}, "must be SOURCE:TARGET"},
		"two uses of stdin":      {[]string{"-i", "-"}, "give one of them"},
		"ulimit of whom":         {[]string{"--ulimit", "souls=1", "a.py"}, "must be NAME=SOFT[:HARD]"},
		"ulimit upside down":     {[]string{"--ulimit", "nofile=9:8", "a.py"}, "must be NAME=SOFT[:HARD]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tryRequest(t, nil, test.args...)
			require.ErrorContains(t, err, test.want)
			require.Equal(t, cli.ExitUsage, cli.ExitCode(nil, err))
			require.NotEmpty(t, new(cli.App).Hints(err))
		})
	}
	// A file of this machine is not in the image; "--" alone would not help.
	for name, want := range map[string]string{
		"notes.txt": "begin the script with #!", "OK.PY": "ends in .py", "python3.11": "sandbox run -- python3.11 'it'\\''s'",
		"python:3.12": "sandbox run --image python:3.12 SCRIPT.py",
	} {
		_, err := tryRequest(t, nil, name, "it's")
		require.Contains(t, new(cli.App).Hints(err)[0], want)
	}
	// A directory is refused by the check of scripts, as a directory.
	require.Equal(t, "folder", requestOf(t, nil, "folder").Script)
	// So is a script that does not exist, whatever its language is.
	require.Equal(t, "missing.sh", requestOf(t, nil, "missing.sh").Script)
	treetest.File(t, "job", "#!/bin/sh -e\n")
	got := requestOf(t, nil, "job", "-x", "--", "--memory")
	require.Equal(t, sandbox.Request{Script: "job", Interpreter: []string{"/bin/sh", "-e"}, Args: []string{"-x", "--", "--memory"}, Labels: map[string]string{}}, sandbox.Request{Script: got.Script, Interpreter: got.Interpreter, Args: got.Args, Labels: got.Labels})
}

func requestOf(t *testing.T, environ []string, args ...string) sandbox.Request {
	t.Helper()
	req, err := tryRequest(t, environ, args...)
	require.NoError(t, err)
	return req
}

// tryRequest reads the flags of `run` as the command does, and runs nothing.
func tryRequest(t *testing.T, environ []string, args ...string) (sandbox.Request, error) {
	t.Helper()
	_, req, err := readFlags(t, environ, args...)
	return req, err
}

func flagsOf(t *testing.T, args ...string) (runFlags, sandbox.Request) {
	t.Helper()
	f, req, err := readFlags(t, nil, args...)
	require.NoError(t, err)
	return f, req
}

func readFlags(t *testing.T, environ []string, args ...string) (runFlags, sandbox.Request, error) {
	t.Helper()
	a := &cli.App{Environ: environ, ConfigFile: emptyFile(t), Given: settings.Flags{}, Command: "sandbox run"}
	var flags runFlags
	cmd := newRunWith(a, &flags)
	require.NoError(t, cmd.ParseFlags(args))
	require.NoError(t, cmd.PreRunE(cmd, nil))
	s, err := a.Settings()
	require.NoError(t, err)
	req, clean, err := flags.request(a, s, cmd.Flags().Args())
	clean()
	return flags, req, err
}

func emptyFile(t *testing.T) string {
	t.Helper()
	return treetest.File(t, filepath.Join(t.TempDir(), "empty.yaml"), "")
}
