package main

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
)

// TestMain puts the command into PATH. It is built as it is released: the scripts start it 1,400 times, and
// the binary of the tests is larger and, with the race detector, ten times slower to start.
func TestMain(m *testing.M) { os.Exit(withCommand(m)) }

func withCommand(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sandbox-command-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "sandbox"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return m.Run()
}

// TestScript runs the scripts that specify the command line and need no engine.
func TestScript(t *testing.T) { testscript.Run(t, scriptsOf("testdata/script")) }

// TestEngineScript runs the scripts that need an engine and the default image.
func TestEngineScript(t *testing.T) { testscript.Run(t, scriptsOf("testdata/script/engine")) }

func scriptsOf(dir string) testscript.Params {
	return testscript.Params{
		Dir: dir, RequireExplicitExec: true, RequireUniqueNames: true, Setup: setupScript,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitcodeCommand, "refused": refusedCommand, "interrupt": interruptCommand, "empty": emptyCommand,
			"atline": atlineCommand, "keys": keysCommand, "registry": registryCommand,
			"standin": standinCommand, "keypair": keypairCommand, "waitpool": waitpoolCommand,
		},
	}
}

// engineVariables say which engine is meant.
var engineVariables = []string{
	"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH",
}

// setupScript gives each script its own state, and the engine of the caller.
func setupScript(env *testscript.Env) error {
	env.Setenv("SANDBOX_STATE_DIR", filepath.Join(env.WorkDir, "state"))
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		return err
	}
	env.Setenv("EXAMPLES", examples)
	env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "xdg"))
	env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
	for _, name := range engineVariables {
		if text, ok := os.LookupEnv(name); ok {
			env.Setenv(name, text)
		}
	}
	if home, err := os.UserHomeDir(); err == nil && os.Getenv("DOCKER_CONFIG") == "" {
		env.Setenv("DOCKER_CONFIG", filepath.Join(home, ".docker")) // scripts have another home
	}
	return nil
}

// exitcodeCommand is "exitcode N COMMAND...": the command ends with this code.
func exitcodeCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	wantCode(ts, ts.Exec(args[1], args[2:]...), want)
}

// refusedCommand is "refused COMMAND...": the command ends with exit code 125,
// prints nothing on stdout, and on stderr only our lines, with a hint.
func refusedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: refused COMMAND...")
	}
	wantCode(ts, ts.Exec(args[0], args[1:]...), cli.ExitSandbox)
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout is not empty")
	}
	hints := 0
	for line := range strings.Lines(ts.ReadFile("stderr")) {
		if !strings.HasPrefix(line, "sandbox: ") {
			ts.Fatalf("a line of stderr is not ours: %q", line)
		}
		if strings.HasPrefix(line, "sandbox: hint: ") {
			hints++
		}
	}
	if hints == 0 {
		ts.Fatalf("there is no hint")
	}
}

func wantCode(ts *testscript.TestScript, err error, want int) {
	got := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// interruptCommand is "interrupt N LINE,LINE COMMAND...": each time the command
// has printed the next of the lines, it gets a SIGINT; then it ends with code N. An empty
// LINE is a SIGTERM right behind the signal before: the kernel drops a second SIGINT that comes
// before the first is delivered.
func interruptCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: interrupt N LINE,LINE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	cmd := scriptCommand(ts, args[2:])
	cmd.Stderr = ts.Stderr()
	// Whoever started the tests may ignore it, and the command would inherit that.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, os.Interrupt)
	defer signal.Stop(heard)
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	lines := bufio.NewScanner(io.TeeReader(stdout, ts.Stdout()))
	for _, line := range strings.Split(args[1], ",") {
		for line != "" && lines.Scan() && lines.Text() != line { //nolint:revive // reads up to the line
		}
		if line != "" && lines.Text() != line {
			_ = cmd.Wait() // the missing line is the failure
			ts.Fatalf("the line %q never came", line)
		}
		if line == "" {
			ts.Check(cmd.Process.Signal(syscall.SIGTERM))
		} else {
			ts.Check(cmd.Process.Signal(os.Interrupt))
		}
	}
	for lines.Scan() { //nolint:revive // the rest goes to the script's stdout
	}
	wantCode(ts, cmd.Wait(), want)
}

// clusterVariables say which cluster is meant.
var clusterVariables = []string{
	"KUBECONFIG", "SANDBOX_ENGINE", "SANDBOX_IMAGE", "SANDBOX_CPUS", "SANDBOX_MEMORY",
	"SANDBOX_KUBERNETES_PROGRAMS",
}

// scriptCommand is a command with the environment of its script.
func scriptCommand(ts *testscript.TestScript, args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	names := []string{"PATH", "HOME", "SANDBOX_STATE_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"}
	for _, name := range append(names, slices.Concat(engineVariables, clusterVariables)...) {
		if text := ts.Getenv(name); text != "" {
			cmd.Env = append(cmd.Env, name+"="+text)
		}
	}
	return cmd
}

// atlineCommand is "atline kill|interrupt N TEXT COMMAND...": when the command prints a
// line with the text on stderr, it gets a SIGKILL or a SIGINT; then it ends with code N.
func atlineCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: atline kill|interrupt N TEXT COMMAND...")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	signals := map[string]os.Signal{"kill": os.Kill, "interrupt": os.Interrupt}
	cmd := scriptCommand(ts, args[3:])
	cmd.Stdout = ts.Stdout()
	// Whoever started the tests may ignore it, and the command would inherit that.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, os.Interrupt)
	defer signal.Stop(heard)
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	seen := false
	lines := bufio.NewScanner(io.TeeReader(stderr, ts.Stderr()))
	for lines.Scan() {
		if !seen && strings.Contains(lines.Text(), args[2]) {
			seen = true
			ts.Check(cmd.Process.Signal(signals[args[0]]))
		}
	}
	wantCode(ts, cmd.Wait(), want)
	if !seen {
		ts.Fatalf("no line with %q came", args[2])
	}
}

// waitpoolCommand is "waitpool N": until at least N containers wait for runs.
func waitpoolCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitpool N")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	for until := time.Now().Add(time.Minute); ; {
		var status struct{ Waiting int }
		err := ts.Exec("sandbox", "pool", "status", "--json")
		if err == nil {
			ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &status))
		}
		if err == nil && status.Waiting >= want {
			return
		}
		if time.Now().After(until) {
			ts.Fatalf("%d of %d containers wait: %v", status.Waiting, want, err)
		}
	}
}

// emptyCommand is "empty FOLDER...": each directory is missing or holds no file, at
// any depth.
func emptyCommand(ts *testscript.TestScript, neg bool, args []string) {
	for _, dir := range args {
		var found []string
		err := filepath.WalkDir(ts.MkAbs(dir), func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				found = append(found, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Check(err)
		}
		if (len(found) == 0) == neg {
			ts.Fatalf("%s holds %v", dir, found)
		}
	}
}

// keysCommand is "keys FILE KEY...": FILE is a JSON object with these keys and no others, or
// a list or lines of objects that together have them. KEY=TEXT says the value, too, KEY? may
// be missing, and "..." at the end permits further keys.
func keysCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: keys FILE KEY...")
	}
	want := args[1:]
	got := map[string]bool{}
	for text := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0]))); text.More(); {
		var document json.RawMessage
		ts.Check(text.Decode(&document))
		var objects []map[string]any
		if json.Unmarshal(document, &objects) != nil {
			objects = make([]map[string]any, 1)
			ts.Check(json.Unmarshal(document, &objects[0]))
		}
		for _, object := range objects {
			for key, value := range object {
				if text, ok := value.(string); ok && slices.Contains(want, key+"="+text) {
					key += "=" + text
				}
				got[key] = true
			}
		}
	}
	more := want[len(want)-1] == "..."
	for _, key := range want {
		key, optional := strings.CutSuffix(key, "?")
		if key != "..." && !got[key] && !optional {
			ts.Fatalf("%s lacks %s", args[0], key)
		}
		delete(got, key)
	}
	if len(got) > 0 && !more {
		ts.Fatalf("%s has further keys: %v", args[0], slices.Sorted(maps.Keys(got)))
	}
}

// keypairCommand is "keypair NAME": a new pair of keys, NAME.key and NAME.pub, as openssl
// writes them.
func keypairCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keypair NAME")
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	ts.Check(err)
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	ts.Check(err)
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	ts.Check(err)
	for name, block := range map[string]*pem.Block{
		args[0] + ".key": {Type: "PRIVATE KEY", Bytes: privateDER},
		args[0] + ".pub": {Type: "PUBLIC KEY", Bytes: publicDER},
	} {
		ts.Check(os.WriteFile(ts.MkAbs(name), pem.EncodeToMemory(block), 0o600))
	}
}
