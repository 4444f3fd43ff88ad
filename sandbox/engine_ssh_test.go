//go:build linux

package sandbox_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// sshServer is an sshd of the test's own, and an ssh command that knows it.
type sshServer struct {
	t         *testing.T
	dir, port string
	log       bytes.Buffer
}

// newSSHServer starts an sshd on the loopback. Logins get the given environment
// ("NAME=value"). The ssh command of this process is one that has a key for it and
// writes down which processes it becomes.
func newSSHServer(t *testing.T, env ...string) *sshServer {
	t.Helper()
	sshd, err := exec.LookPath("sshd")
	require.NoError(t, err, "these tests need openssh-server")
	ssh, err := exec.LookPath("ssh")
	require.NoError(t, err, "these tests need openssh-client")
	require.Zero(t, os.Geteuid(), "sshd needs root")
	require.NoError(t, os.MkdirAll("/run/sshd", 0o755)) // sshd does not start without
	s := &sshServer{t: t, dir: t.TempDir(), port: freePort(t)}
	for _, name := range []string{"host", "user"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.path(name)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	config := "Port " + s.port + "\nListenAddress 127.0.0.1\nHostKey " + s.path("host") + "\nAuthorizedKeysFile " + s.path("user.pub") +
		"\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPrintMotd no\nMaxStartups 10:100:10\n"
	if len(env) > 0 {
		config += "SetEnv " + strings.Join(env, " ") + "\n"
	}
	s.write("sshd_config", config, 0o600)
	key, err := os.ReadFile(s.path("host.pub"))
	require.NoError(t, err)
	s.write("known_hosts", fmt.Sprintf("[127.0.0.1]:%s %s", s.port, key), 0o600)
	s.write("ssh_config", "UserKnownHostsFile "+s.path("known_hosts")+"\nGlobalKnownHostsFile /dev/null\nIdentityFile "+s.path("user")+
		"\nIdentitiesOnly yes\nIdentityAgent none\n", 0o600)
	require.NoError(t, os.Mkdir(s.path("bin"), 0o700))
	s.write("bin/ssh", fmt.Sprintf("#!/bin/sh\necho $$ >>%s\nexec %s -F %s \"$@\"\n", s.path("pids"), ssh, s.path("ssh_config")), 0o700)
	t.Setenv("PATH", s.path("bin")+":"+os.Getenv("PATH"))

	server := exec.Command(sshd, "-D", "-e", "-f", s.path("sshd_config"))
	server.Stdout, server.Stderr = &s.log, &s.log
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+s.port)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond, "sshd does not listen")
	return s
}

func (s *sshServer) path(name string) string { return filepath.Join(s.dir, name) }

func (s *sshServer) write(name, text string, mode os.FileMode) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(text), mode))
}

// address is the engine behind the server, at a socket there.
func (s *sshServer) address(socket string) string {
	me, err := user.Current()
	require.NoError(s.t, err)
	return "ssh://" + me.Username + "@127.0.0.1:" + s.port + socket
}

// processes are the ssh processes that were ever started.
func (s *sshServer) processes() (pids []int) {
	text, err := os.ReadFile(s.path("pids"))
	if err != nil {
		return nil
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		require.NoError(s.t, err)
		pids = append(pids, pid)
	}
	return pids
}

// alive are those of them that have not ended.
func (s *sshServer) alive() (pids []int) {
	for _, pid := range s.processes() {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(text, []byte(s.dir)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// engineSocket is the socket of the engine under test.
func engineSocket(t *testing.T) string {
	t.Helper()
	endpoint, err := dockerhost.Find(dockerhost.Address{})
	require.NoError(t, err)
	path, ok := strings.CutPrefix(endpoint.Host, "unix://")
	require.True(t, ok, "the engine under test is at %s, and these tests need its socket", endpoint.Host)
	return path
}

func TestEngineBehindSSH(t *testing.T) {
	socket := engineSocket(t)
	s := newSSHServer(t, "DOCKER_HOST=unix://"+socket)
	dockerEnv(t)
	direct, err := ask(t, docker.Address{Host: "unix://" + socket})
	require.NoError(t, err)

	t.Run("by an address", func(t *testing.T) {
		info, err := ask(t, docker.Address{Host: s.address("")})
		require.NoError(t, err)
		require.Equal(t, direct.ID, info.ID)
		require.Equal(t, s.address(""), info.Address)
		require.False(t, info.Local)
		require.Empty(t, info.Exposed)
		require.Empty(t, s.alive())
	})
	t.Run("by a context", func(t *testing.T) {
		create := exec.CommandContext(t.Context(), "docker", "context", "create", "lab", "--docker", "host="+s.address(socket))
		out, err := create.CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Setenv("DOCKER_CONTEXT", "lab")
		info, err := ask(t, docker.Address{})
		require.NoError(t, err)
		require.Equal(t, direct.ID, info.ID)
	})
	t.Run("never by a proxy", func(t *testing.T) {
		for _, host := range []string{s.address(""), "unix://" + socket} {
			end := askElsewhere(t, host, "HTTP_PROXY=socks5://127.0.0.1:1")
			end()
		}
	})
	t.Run("unknown host key", func(t *testing.T) {
		require.NoError(t, os.Rename(s.path("known_hosts"), s.path("aside")))
		defer func() { require.NoError(t, os.Rename(s.path("aside"), s.path("known_hosts"))) }()
		_, err := ask(t, docker.Address{Host: s.address("")})
		requireProblem(t, dockerhost.KindSSH, err, s.address("")+": Host key verification failed.")
	})
	t.Run("key not accepted", func(t *testing.T) {
		require.NoError(t, os.Rename(s.path("user.pub"), s.path("aside")))
		defer func() { require.NoError(t, os.Rename(s.path("aside"), s.path("user.pub"))) }()
		_, err := ask(t, docker.Address{Host: s.address("")})
		requireProblem(t, dockerhost.KindSSH, err, "Permission denied (publickey)")
	})
	t.Run("no engine there", func(t *testing.T) {
		_, err := ask(t, docker.Address{Host: s.address("/no/such.sock")})
		requireProblem(t, dockerhost.KindSSH, err, "/no/such.sock")
	})
	t.Run("nobody there", func(t *testing.T) {
		_, err := ask(t, docker.Address{Host: "ssh://127.0.0.1:" + freePort(t)})
		requireProblem(t, dockerhost.KindSSH, err, "Connection refused")
	})
	t.Run("no ssh command", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := ask(t, docker.Address{Host: s.address("")})
		requireProblem(t, dockerhost.KindSSH, err, "executable file not found")
	})
	t.Run("other calls tell as well", func(t *testing.T) {
		e, err := docker.Connect(docker.Address{Host: s.address("/no/such.sock")})
		require.NoError(t, err)
		_, err = e.Open(t.Context(), engine.Ref{ID: "any", Nonce: strings.Repeat("00", 32)}, engine.Streams{})
		requireProblem(t, dockerhost.KindSSH, err, "/no/such.sock")
		require.NoError(t, e.Close())
	})
	require.Empty(t, s.alive())
}

func TestEngineSSHWithoutDockerThere(t *testing.T) {
	s := newSSHServer(t, "PATH=/no/such/folder")
	dockerEnv(t)
	_, err := ask(t, docker.Address{Host: s.address("")})
	requireProblem(t, dockerhost.KindSSH, err, "docker: ")
}

// sshPerRun is how many connections, and so processes, one run may have at a time.
const sshPerRun = 8

// A run over ssh whose processes are killed goes on with new ones, and leaves none.
func TestEngineSSHConnectionCut(t *testing.T) {
	e := newPrivateEngine(t)
	s := newSSHServer(t)
	dockerEnv(t)
	engine, err := docker.Connect(docker.Address{Host: s.address(e.dir + "/sock")})
	require.NoError(t, err)

	killed := 0
	res, err := e.runWaiterOn(engine, func(goOn func()) {
		alive := s.alive()
		if len(alive) > sshPerRun {
			t.Errorf("a run has %d processes of ssh", len(alive))
		}
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			killed++
		}
		goOn()
	})
	require.NoError(t, err)
	require.NotZero(t, killed)
	require.Equal(t, result.StatusExited, res.Status, res.Explanation)
	require.Equal(t, 7, res.ExitCode)
	require.Contains(t, res.Stdout, "ready\n")
	require.Greater(t, len(s.processes()), killed)
	require.NoError(t, engine.Close())
	require.Empty(t, s.alive())
}

// engineOverSSH is the engine of the tests at the end of an ssh connection.
func engineOverSSH(t *testing.T) (*sshServer, engine.Engine) {
	t.Helper()
	s := newSSHServer(t)
	dockerEnv(t)
	engine, err := docker.Connect(docker.Address{Host: s.address(engineSocket(t))})
	require.NoError(t, err)
	return s, engine
}

// A whole run over ssh, with stdin, in few connections.
func TestEngineRunOverSSH(t *testing.T) {
	s, engine := engineOverSSH(t)
	r, err := sandbox.New(sandbox.WithEngine(engine), sandbox.WithCatalog(runnertest.Catalog(t)), sandbox.WithStateDir(t.TempDir()))
	require.NoError(t, err)
	res, err := r.Run(t.Context(), sandbox.Request{
		Command: []string{"sh", "-c", "cat; echo kept >final/kept"},
		Final:   filepath.Join(t.TempDir(), "final"),
	}, sandbox.IO{Stdin: strings.NewReader("over ssh\n")})
	require.NoError(t, err)
	require.Equal(t, result.StatusExited, res.Status, res.Explanation)
	require.Equal(t, "over ssh\n", res.Stdout)
	require.Len(t, res.Outputs, 1)
	require.LessOrEqual(t, len(s.processes()), sshPerRun)
	require.NoError(t, r.Close())
	require.Empty(t, s.alive())
}

// Many calls at once do not log in all at once, which a server refuses.
func TestEngineManyCallsOverSSH(t *testing.T) {
	s, engine := engineOverSSH(t)
	_, err := engine.Info(t.Context()) // agrees on the API's version, which is no matter for many at once
	require.NoError(t, err)
	var calls errgroup.Group
	for range 25 {
		calls.Go(func() error {
			_, err := engine.List(t.Context())
			return err
		})
	}
	require.NoError(t, calls.Wait())
	require.NoError(t, engine.Close())
	require.Empty(t, s.alive())
}

// The processes of ssh end with a process of ours that is killed.
func TestEngineSSHEndsWithUs(t *testing.T) {
	socket := engineSocket(t)
	s := newSSHServer(t)
	dockerEnv(t)
	end := askElsewhere(t, s.address(socket))
	require.NotEmpty(t, s.alive())
	end()
	require.Eventually(t, func() bool { return len(s.alive()) == 0 }, time.Minute, 10*time.Millisecond)
}

const elsewhereVariable = "SANDBOX_TEST_ASK"

// TestAskElsewhere is no test but the other process of askElsewhere.
func TestAskElsewhere(t *testing.T) {
	host := os.Getenv(elsewhereVariable)
	if host == "" {
		return
	}
	engine, err := docker.Connect(docker.Address{Host: host})
	require.NoError(t, err)
	info, err := engine.Info(t.Context())
	fmt.Println("answer:", info.ID, err)
	select {} // the connection stays until this process is killed
}

// askElsewhere asks an engine in another process with further variables, which
// must get an answer and keeps its connection until the end.
func askElsewhere(t *testing.T, host string, env ...string) (end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAskElsewhere$")
	cmd.Env = append(append(os.Environ(), elsewhereVariable+"="+host), env...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	answer, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, "^answer: [^ ]+ <nil>\n$", answer)
	return end
}
