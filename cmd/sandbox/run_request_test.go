package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Every flag of `run` reaches the field of the request that it names.
func TestFlagsToRequest(t *testing.T) {
	dir := t.TempDir()
	envFile := write(t, filepath.Join(dir, "vars"), "A=file\nB=file\n")
	got := requestOf(t, []string{"HOME_MADE=yes"},
		"--image", "python", "-m", "512m", "--cpus", "1.5", "--gpus", "device=0,1", "--gpu-driver", "cdi", "--gpu-share", "--gpu-wait", "2m", "--env-file", envFile,
		"-e", "A=flag", "--env", "HOME_MADE", "-e", "ABSENT", "-e", "EMPTY=", "--network", "none", "--runtime", "runsc",
		"--shm-size", "64m", "--pids-limit", "100", "-u", "1000:1000", "--transfer", "copy", "--ulimit", "nofile=64:128", "--ulimit", "nproc=9",
		"-l", "team=ml", "--label", "bare", "--name", "first", "--timeout", "90", "--grace", "2s", "--input", "data",
		"--final", "out", "--keep", "--tmp-size", "1m", "--scratch-size", "2m", "--disk", "3m", "--output-limit", "4m",
		"--id", "run-1", "train.py", "--epochs", "3", "--", "-q")
	require.Equal(t, sandbox.Request{
		ID: "run-1", Name: "first", Labels: map[string]string{"team": "ml", "bare": ""},
		Image: "python", Script: "train.py", Args: []string{"--epochs", "3", "--", "-q"},
		Input: "data", Final: "out",
		Env:  map[string]string{"A": "flag", "B": "file", "HOME_MADE": "yes", "EMPTY": ""},
		User: "1000:1000", Network: "none", Runtime: "runsc", GPUs: "device=0,1",
		GPUDriver: "cdi", GPUShare: true, GPUWait: 2 * time.Minute,
		Limits: policy.Limits{
			Timeout: 90 * time.Second, Grace: 2 * time.Second, Memory: 512 * policy.MiB, CPUs: 1.5, PIDs: 100,
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
	tests := map[string]struct {
		args []string
		want string
	}{
		"nothing":            {nil, "nothing to run"},
		"nothing after --":   {[]string{"--"}, "the command is empty"},
		"empty command":      {[]string{"--", ""}, "the command is empty"},
		"command without --": {[]string{"python3", "-V"}, `"python3" is not a Python script`},
		"shell script":       {[]string{"run.sh"}, `"run.sh" is not a Python script`},
		"env without a name": {[]string{"-e", "=x", "a.py"}, "must be NAME=VALUE or NAME"},
		"ulimit":             {[]string{"--ulimit", "nofile", "a.py"}, `--ulimit "nofile": must be NAME=SOFT[:HARD]`},
		"ulimit of whom":     {[]string{"--ulimit", "souls=1", "a.py"}, "must be NAME=SOFT[:HARD]"},
		"ulimit upside down": {[]string{"--ulimit", "nofile=9:8", "a.py"}, "must be NAME=SOFT[:HARD]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tryRequest(t, nil, test.args...)
			require.ErrorContains(t, err, test.want)
			require.Equal(t, exitUsage, exitCode(nil, err))
			require.NotEmpty(t, hints(err))
		})
	}
	// A file of ours is not in the image; "--" alone would not help.
	for name, want := range map[string]string{
		"run.sh": "sandbox run --input FOLDER -- sh input/run.sh", "OK.PY": "ends in .py", "python3.11": "sandbox run -- python3.11 'it'\\''s'",
	} {
		_, err := tryRequest(t, nil, name, "it's")
		require.Contains(t, hints(err)[0], want)
	}
	// A folder is refused by the check of scripts, as a folder.
	require.Equal(t, "folder", requestOf(t, nil, "folder").Script)
}

func TestEnvFile(t *testing.T) {
	environ := []string{"OWN=mine", "OWNER=other"}
	tests := map[string]struct {
		text string
		want map[string]string
		err  string
	}{
		"pairs":            {text: "A=1\nB=2", want: map[string]string{"A": "1", "B": "2"}},
		"last one wins":    {text: "A=1\nA=2\n", want: map[string]string{"A": "2"}},
		"comment":          {text: "# A=1\n  # B=2\n\nC=3 # kept\n", want: map[string]string{"C": "3 # kept"}},
		"nothing unquoted": {text: `A="x $B"`, want: map[string]string{"A": `"x $B"`}},
		"equals sign":      {text: "A=b=c", want: map[string]string{"A": "b=c"}},
		"caller's own":     {text: "OWN\nABSENT\n", want: map[string]string{"OWN": "mine"}},
		"empty":            {text: "A=", want: map[string]string{"A": ""}},
		"indented":         {text: " \tA=1", want: map[string]string{"A": "1"}},
		"Windows":          {text: "\ufeffA=1\r\nB=2\r\n", want: map[string]string{"A": "1", "B": "2"}},
		"space in name":    {text: "A=1\nB C=2", err: `line 2: variable "B C": must be NAME=VALUE or NAME`},
		"no name":          {text: "=1", err: `line 1: variable "": must be NAME=VALUE or NAME`},
		"not text":         {text: "A=1\n\nB=\xff", err: "line 3 is not UTF-8 text"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			err := parseEnvFile([]byte(test.text), environ, got)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
	require.EqualError(t, readEnvFile("/no/such/file", nil, nil), "env-file /no/such/file: no such file or directory")
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
	a := &app{environ: environ, configFile: emptyFile(t)}
	var flags runFlags
	cmd := newRunCommandWith(a, &flags)
	require.NoError(t, cmd.ParseFlags(args))
	s, err := a.settings()
	require.NoError(t, err)
	return flags.request(s, environ, cmd.Flags().Args(), cmd.ArgsLenAtDash())
}
