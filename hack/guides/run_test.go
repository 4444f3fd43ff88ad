//go:build guides

package guides

import (
	"bufio"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	settings = flag.String("settings", "", "run the guides of these settings, separated by commas; the empty one is that of a guide that names none")
	only     = flag.String("guides", "", "run only the guides of these names, separated by commas, such as tutorial")
	update   = flag.Bool("update", false, "write what the commands print into the pages, where it differs")
)

// commandTime is the time that one command of a guide may take.
const commandTime = 5 * time.Minute

// TestGuides runs each guide of the settings.
func TestGuides(t *testing.T) {
	repository, err := filepath.Abs("../..")
	require.NoError(t, err)
	programs := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(programs, "sandbox"), "./cmd/sandbox")
	build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	pages, err := filepath.Glob(filepath.Join(repository, "docs/guides/*.md"))
	require.NoError(t, err)
	ran := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		guide, err := Parse(string(text))
		require.NoError(t, err, page)
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if testing.Short() && name != "tutorial" { // what a reader does first
			continue
		}
		if !slices.Contains(strings.Split(*settings, ","), guide.Setting) || *only != "" && !slices.Contains(strings.Split(*only, ","), name) {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			runGuide(t, guide, page, newShell(t, repository, programs, guide.Setting))
		})
	}
	require.NotZero(t, ran, "no guide has one of the settings %q and of the names %q", *settings, *only)
}

const untilNoContainers = `while [ -n "$(docker ps -aq --filter label=org.evalbox.managed=true)" ]; do sleep 0.1; done`

func runGuide(t *testing.T, guide Guide, page string, sh *shell) {
	lines := strings.SplitAfter(readFile(t, page), "\n")
	var changed []Step
	for i, step := range guide.Steps {
		where := fmt.Sprintf("%s:%d", filepath.Base(page), step.Line)
		if step.File != "" {
			_, code := sh.run(t, where, "mkdir -p \"$(dirname "+step.File+")\"; base64 -d >"+step.File+" <<<"+base64.StdEncoding.EncodeToString([]byte(step.Text)))
			require.Zero(t, code, where)
			sh.code = 0
			continue
		}
		if strings.Contains(step.Command, "docker image rm") { // a reader types more slowly than an engine removes containers
			before := sh.code
			_, code := sh.run(t, where, "timeout 60 sh -c '"+untilNoContainers+"'")
			require.Zero(t, code, "%s: the containers of runs are not removed", where)
			sh.code = before
		}
		printed, code := sh.run(t, where, step.Command)
		if i+1 == len(guide.Steps) || guide.Steps[i+1].Command != "echo $?" {
			require.Zero(t, code, "%s: $ %s\n%s", where, step.Command, printed)
		}
		matches := Matches(step.Output, printed)
		if step.Command == "echo $?" {
			matches = step.Output == printed
		}
		if !matches {
			if step.Output = printed; *update {
				changed = append(changed, step)
				continue
			}
			assert.Fail(t, "another output", "%s: $ %s\nprinted:\n%s", where, step.Command, printed)
		}
	}
	for _, step := range slices.Backward(changed) {
		first := step.Line + strings.Count(step.Command, "\n") // the index of the line below the command
		lines = slices.Replace(lines, first, step.End-1, strings.TrimRight(step.Output, "\n")+"\n")
	}
	if len(changed) > 0 {
		require.NoError(t, os.WriteFile(page, []byte(strings.Join(lines, "")), 0o644)) //nolint:gosec // a page of this repository
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// A shell is the bash in which a guide is run.
type shell struct {
	commands io.Writer
	output   *bufio.Reader
	kill     func()
	mark     string
	code     int
}

// loop runs each command of file descriptor 3 and prints a mark and the exit code behind its output.
const loop = `while IFS= read -r -d '' -u 3 command; do
eval "$command" 3<&- </dev/null
printf '\n%s %d\n' "$GUIDE_MARK" "$?"
done`

// newShell starts a shell in an empty home directory, with the command sandbox, the engine of the caller, and
// nothing else of the caller. A setting may have stand-ins, which come first in PATH.
func newShell(t *testing.T, repository, programs, setting string) *shell {
	t.Helper()
	home := t.TempDir()
	path := programs + ":" + os.Getenv("PATH")
	if setting != "" {
		path = filepath.Join(repository, "hack/guides/standins", setting) + ":" + path
	}
	// A guide clones the public repository; here that is this one.
	gitconfig := fmt.Sprintf("[safe]\n\tdirectory = *\n[url %q]\n\tinsteadOf = https://github.com/evalbox/evalbox\n[user]\n\tname = A Reader\n\temail = reader@example.com\n"+
		"[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n", "file://"+repository)
	require.NoError(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(gitconfig), 0o600))
	mark := fmt.Sprintf("end-of-command-%d", time.Now().UnixNano())
	env := []string{"HOME=" + home, "PATH=" + path, "LANG=C.UTF-8", "GUIDE_MARK=" + mark,
		"SANDBOX_STATE_DIR=" + filepath.Join(home, ".local/state/evalbox")} // root's is that of the machine
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "TMPDIR",
		"GOPROXY", "GOSUMDB", "GOFLAGS", "KUBECONFIG", "SANDBOX_ENGINE", "SANDBOX_IMAGE", "SANDBOX_CPUS", "SANDBOX_MEMORY", "SANDBOX_KUBERNETES_PROGRAMS"} {
		if text, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+text)
		}
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} { // otherwise below the home directory
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		require.NoError(t, err)
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}

	ctx, cancel := context.WithCancel(t.Context())
	commandsIn, commands, err := os.Pipe()
	require.NoError(t, err)
	output, outputIn, err := os.Pipe()
	require.NoError(t, err)
	bash := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-c", loop)
	bash.Dir, bash.Env = home, env
	bash.Stdout, bash.Stderr, bash.ExtraFiles = outputIn, outputIn, []*os.File{commandsIn}
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	require.NoError(t, bash.Start())
	_ = commandsIn.Close()
	_ = outputIn.Close()
	t.Cleanup(func() {
		_ = commands.Close() // the loop ends
		cancel()             // and with it what a guide left in the background
		_ = bash.Wait()
		_ = output.Close()
	})
	return &shell{commands: commands, output: bufio.NewReader(output), kill: cancel, mark: "\n" + mark + " "}
}

// run runs a command and returns its output and its exit code.
func (s *shell) run(t *testing.T, where, command string) (string, int) {
	t.Helper()
	timer := time.AfterFunc(commandTime, s.kill)
	defer timer.Stop()
	// The command sees the exit code of the one before as $?.
	_, err := fmt.Fprintf(s.commands, "(exit %d)\n%s\x00", s.code, command)
	require.NoError(t, err, where)
	var printed strings.Builder
	for {
		line, err := s.output.ReadString('\n')
		printed.WriteString(line)
		require.NoError(t, err, "%s: $ %s\nno end within %v:\n%s", where, command, commandTime, printed.String())
		text, code, ok := strings.Cut(printed.String(), s.mark)
		if !ok {
			continue
		}
		s.code, err = strconv.Atoi(strings.TrimSpace(code))
		require.NoError(t, err)
		return text, s.code
	}
}
