//go:build linux

package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// quietly tries something and hides that it failed, as a program does that shall not
// be found out.
const quietly = `
import os, socket
def quietly(do):
    try:
        do()
    except OSError:
        pass
`

func attempts(n int64) *int64 { return &n }

func TestEngineObserveNetwork(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	for name, test := range map[string]struct {
		program string
		want    int64
	}{
		"nothing":       {"pass", 0},
		"TCP":           {"quietly(lambda: socket.socket().connect(('1.1.1.1', 443)))", 1},
		"TCP over IPv6": {"quietly(lambda: socket.socket(socket.AF_INET6).connect(('2606:4700:4700::1111', 443)))", 1},
		"UDP":           {"quietly(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('1.1.1.1', 53)))", 1},
		"UDP connected": {"quietly(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('1.1.1.1', 53)))", 1},
		"UDP over IPv6": {"quietly(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('2606:4700:4700::1111', 53)))", 1},
		"a group":       {"quietly(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('224.0.0.251', 5353)))", 1},
		"a group through the loopback": {`
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('127.0.0.1'))
s.sendto(b'x', ('224.0.0.251', 5353))`, 1},
		"groups of IPv6 through the loopback": {`
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex('lo'))
quietly(lambda: s.sendto(b'x', ('ff02::fb', 5353)))
quietly(lambda: s.sendto(b'x', ('ff02::fb%lo', 5353)))`, 2},
		"several, of a process that is left behind": {`
if os.fork() == 0:
    for i in range(5):
        quietly(lambda: socket.socket().connect(('10.0.0.1', 80)))
    os._exit(0)
os.wait()`, 5},
		"sockets that cannot be bound to the loopback device": {`
lo = socket.if_nametoindex('lo')
for family, level, option, value, address in (
    (socket.AF_INET, socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'lo', '1.1.1.1'),
    (socket.AF_INET, socket.IPPROTO_IP, 50, socket.htonl(lo), '1.1.1.1'),           # IP_UNICAST_IF
    (socket.AF_INET6, socket.IPPROTO_IPV6, 76, socket.htonl(lo), '::ffff:1.1.1.1'),  # IPV6_UNICAST_IF
):
    s = socket.socket(family, socket.SOCK_DGRAM)
    try:
        s.setsockopt(level, option, value)
        raise SystemExit('bound')
    except PermissionError:
        pass
    quietly(lambda: s.sendto(b'x', (address, 9)))`, 3},
		"its own addresses": {`
server = socket.create_server(('127.0.0.1', 0))
socket.create_connection(server.getsockname())
quietly(lambda: socket.create_connection(('127.0.0.1', 9)))
quietly(lambda: socket.create_connection(('localhost', 9)))
quietly(lambda: socket.socket(socket.AF_INET6).connect(('::1', 9)))
quietly(lambda: socket.getaddrinfo(socket.gethostname(), 80))
socket.getfqdn()
everywhere = socket.create_server(('', 0))
socket.create_connection(('localhost', everywhere.getsockname()[1]))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
datagrams.sendto(b'x' * 65507, ('127.1.2.3', 9))
datagrams.sendto(b'x', ('127.255.255.255', 9))
socket.socket(socket.AF_UNIX)`, 0},
		"a broadcast": {`
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
quietly(lambda: s.sendto(b'x', ('255.255.255.255', 67)))`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := python(t, quietly+test.program)
			req.Observe = &sandbox.Observe{Network: true, Required: true}
			res := run(t, r, req)
			require.Equal(t, result.StatusExited, res.Status, res.Stderr)
			require.Zero(t, res.ExitCode, res.Stderr)
			require.Empty(t, res.Stderr)
			require.Equal(t, &result.Observed{NetworkAttempts: attempts(test.want), Watched: []string{}, Opened: []string{}}, decoded(t, res).Observed)
		})
	}
	t.Run("a name", func(t *testing.T) {
		t.Parallel()
		req := python(t, quietly+"quietly(lambda: socket.getaddrinfo('example.com', 80))")
		req.Observe = &sandbox.Observe{Network: true}
		require.Positive(t, *run(t, r, req).Observed.NetworkAttempts)
	})
}

// decoded is the result as a reader of its wire form has it.
func decoded(t *testing.T, res *result.Result) result.Result {
	t.Helper()
	text, err := res.Encode()
	require.NoError(t, err)
	again, err := result.Decode(text)
	require.NoError(t, err)
	return again
}

func TestEngineObserveFiles(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	repo := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(repo, "keys"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(repo, "keys", "deep", "er"), 0o755))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(repo, "keys", "deep", "link")))
	require.NoError(t, os.WriteFile(filepath.Join(repo, "keys", "real"), []byte("secret"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(repo, ".env"), []byte("secret"), 0o644))
	require.NoError(t, os.Symlink(".env", filepath.Join(repo, "link")))
	for name, test := range map[string]struct {
		program string
		want    []string
	}{
		"nothing":                    {"pass", nil},
		"looks at names":             {"os.stat('/etc/shadow'), os.stat('/tmp/.ssh/id_rsa'), os.listdir('/etc'), os.listdir('/repo')", nil},
		"reads a file":               {"quietly(lambda: open('/etc/shadow').read())", []string{"/etc/shadow"}},
		"writes a file":              {"quietly(lambda: open('/etc/shadow', 'w'))", nil}, // refused before it is opened
		"lists keys":                 {"os.listdir('/tmp/.ssh')", []string{"/tmp/.ssh/"}},
		"reads a key":                {"open(os.path.expanduser('~/.ssh/id_rsa')).read()", []string{"/tmp/.ssh/id_rsa"}},
		"reads both, often":          {"for i in range(50000): open('/tmp/.ssh/config'), open('/etc/shadow')", []string{"/etc/shadow", "/tmp/.ssh/config"}},
		"over a link":                {"os.symlink('/etc/shadow', '/tmp/x'); open('/tmp/x')", []string{"/etc/shadow"}},
		"a mask":                     {"assert open('/repo/.env').read() == ''", []string{"/repo/.env"}},
		"a mask by a link":           {"assert open('/repo/link').read() == ''", []string{"/repo/.env"}},
		"a hidden directory":         {"assert sorted(os.listdir('/repo/keys')) == ['deep', 'real']", []string{"/repo/keys/"}},
		"a hidden file":              {"assert open('/repo/keys/real').read().startswith('This is a decoy')", []string{"/repo/keys/real"}},
		"a file that is not there":   {"quietly(lambda: open('/repo/keys/none'))", nil},
		"deep in a hidden directory": {"assert os.listdir('/repo/keys/deep/er') == []; open('/repo/keys/deep/link')", []string{"/repo/keys/deep/er/", "/repo/keys/deep/link"}},
		"all that is hidden": {"[open(os.path.join(at, f)) for at, _, names in os.walk('/repo/keys') for f in names]",
			[]string{"/repo/keys/", "/repo/keys/deep/", "/repo/keys/deep/er/", "/repo/keys/deep/link", "/repo/keys/real"}},
		"root's keys":        {"assert os.listdir('/root') == ['.aws']; open('/root/.aws/config').read()", []string{"/root/.aws/config"}},
		"in another process": {"os.system('cat /etc/shadow >/dev/null; ls /tmp/.ssh >/dev/null')", []string{"/etc/shadow", "/tmp/.ssh/"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := python(t, quietly+test.program)
			req.Trees, req.Masks = []sandbox.Tree{{Source: repo, Target: spec.RepoDir}}, []string{"/repo/.env", "/repo/keys"}
			req.Observe = &sandbox.Observe{Canaries: []string{"/etc/shadow", "~/.ssh", "/root/.aws/", "/repo/not-there"}, Masks: true, Required: true}
			res := run(t, r, req)
			require.Zero(t, res.ExitCode, res.Stderr)
			require.ElementsMatch(t, test.want, res.Observed.Opened)
			require.Equal(t, []string{"/etc/shadow", "/repo/.env", "/repo/keys/", "/root/.aws/", "/tmp/.ssh/"}, res.Observed.Watched)
			require.Nil(t, res.Observed.NetworkAttempts)
			require.Empty(t, res.Observed.NetworkWhy+res.Observed.WatchWhy)
			require.Empty(t, res.Trees[0].Created)
			require.Empty(t, res.Trees[0].Deleted)
			requireNothingOfAnObservation(t, r, res.ID)
		})
	}
}

// requireNothingOfAnObservation: what was mounted for it is gone.
func requireNothingOfAnObservation(t *testing.T, r *sandbox.Runner, id string) {
	t.Helper()
	require.NoDirExists(t, filepath.Join(r.Store().RecordDir(id), "hold"))
	require.NoDirExists(t, filepath.Join(r.Store().RecordDir(id), "watch"))
}

// TestEngineObserveHiddenInAMount: a part of a tree that something else is mounted over
// shows what it hides as the tree does; other mounts do not.
func TestEngineObserveHiddenInAMount(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	repo := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(repo, "tests", "keys"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(repo, "tests", "keys", "real"), []byte("secret"), 0o644))
	req := python(t, quietly+`
assert open('/repo/tests/keys/real').read().startswith('This is a decoy')
assert os.listdir('/host/lib/keys') == []
`)
	req.Trees = []sandbox.Tree{{Source: repo, Target: spec.RepoDir}}
	req.Mounts = []sandbox.Mount{{Source: filepath.Join(repo, "tests"), Target: "/repo/tests"}, {Source: filepath.Join(repo, "tests"), Target: "/host/lib"}}
	req.Masks = []string{"/repo/tests/keys"}
	req.Observe = &sandbox.Observe{Masks: true, Required: true}
	res := run(t, r, req)
	require.Zero(t, res.ExitCode, res.Stderr)
	require.Equal(t, []string{"/host/lib/keys/", "/repo/tests/keys/real"}, res.Observed.Opened)
}

// TestEngineObserveDecoys: what lies there is readable, says what it is, and cannot be
// changed.
func TestEngineObserveDecoys(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	input := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(input, "token"), []byte("secret"), 0o644))
	req := python(t, quietly+`
assert sorted(os.listdir('/tmp/.ssh')) == ['authorized_keys', 'config', 'id_ed25519', 'id_rsa', 'known_hosts']
for path in '/tmp/.ssh/id_rsa', '/etc/shadow', '/work/input/token', '/work/.netrc':
    assert open(path).read().startswith('This is a decoy of the sandbox.'), path
    for change in (lambda: open(path, 'w'), lambda: os.remove(path), lambda: os.chmod(path, 0o777)):
        try:
            change()
        except OSError:
            continue
        raise SystemExit('changed ' + path)
`)
	req.Input = input
	req.Observe = &sandbox.Observe{Canaries: []string{"/etc/shadow", "/tmp/.ssh/", "/work/input/token", "/work/.netrc"}, Required: true}
	res := run(t, r, req)
	require.Zero(t, res.ExitCode, res.Stderr)
	require.Equal(t, []string{"/etc/shadow", "/tmp/.ssh/", "/tmp/.ssh/id_rsa", "/work/.netrc", "/work/input/token"}, res.Observed.Opened)
}

// TestEngineObserveDecoysInPlaces: in what is mounted a decoy hides what is there, by
// whatever link it is named; where nothing is, there is nothing to watch.
func TestEngineObserveDecoysInPlaces(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	host := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(host, "keys", "deep"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(host, "keys", "real"), []byte("secret"), 0o644))
	require.NoError(t, os.Symlink("keys", filepath.Join(host, "link")))
	req := python(t, quietly+`
assert 'id_rsa' in os.listdir('/host/lib/keys') and 'real' not in os.listdir('/host/lib/link')
assert not os.path.exists('/work/input/token') and not os.path.exists('/host/lib/none')
`)
	req.Mounts = []sandbox.Mount{{Source: host, Target: "/host/lib"}}
	req.Observe = &sandbox.Observe{Canaries: []string{"/host/lib/link", "/host/lib/keys", "/host/lib/none", "/work/input/token"}, Required: true}
	res := run(t, r, req)
	require.Zero(t, res.ExitCode, res.Stderr)
	require.Equal(t, []string{"/host/lib/keys/"}, res.Observed.Watched)
	require.Equal(t, []string{"/host/lib/keys/"}, res.Observed.Opened)

	require.NoError(t, os.Symlink("/etc/shadow", filepath.Join(host, "out")))
	req.Observe.Canaries = []string{"/host/lib/out"}
	_, err := r.Run(t.Context(), req)
	require.ErrorContains(t, err, "leads out of the mounts")
}

// TestEngineObserveHow: programs of any kind are started as those that nobody observes.
func TestEngineObserveHow(t *testing.T) {
	t.Parallel()
	r := egressRunner(t)
	all := &sandbox.Observe{Network: true, Canaries: []string{"/etc/shadow"}, Required: true}
	for name, test := range map[string]struct {
		change func(req *sandbox.Request)
		check  func(t *testing.T, res *result.Result)
	}{
		"ends at once": {func(req *sandbox.Request) { req.Command = []string{"true"} }, func(t *testing.T, res *result.Result) {
			require.Equal(t, result.StatusExited, res.Status)
			require.Equal(t, attempts(0), res.Observed.NetworkAttempts)
		}},
		"no processes": {func(req *sandbox.Request) {
			req.NoFork, req.Limits.PIDs = true, 1
			req.Command = []string{"python3", "-c", quietly + "quietly(lambda: socket.socket().connect(('1.1.1.1', 80))); open('/etc/shadow')"}
		}, func(t *testing.T, res *result.Result) {
			require.Zero(t, res.ExitCode, res.Stderr)
			require.Equal(t, attempts(1), res.Observed.NetworkAttempts)
			require.Equal(t, []string{"/etc/shadow"}, res.Observed.Opened)
		}},
		"beside a proxy": {func(req *sandbox.Request) {
			req.Egress = &policy.Egress{Level: policy.API, Allow: []string{"a.example"}}
			req.Command = []string{"python3", "-c", quietly + `
import urllib.request
quietly(lambda: urllib.request.urlopen("http://b.example/"))
quietly(lambda: socket.socket().connect(("1.1.1.1", 80)))`}
		}, func(t *testing.T, res *result.Result) {
			require.Zero(t, res.ExitCode, res.Stderr)
			require.EqualValues(t, 1, res.Network.Refused)
			require.Equal(t, attempts(1), res.Observed.NetworkAttempts)
		}},
		"environment and descriptors": {func(req *sandbox.Request) {
			req.Command = []string{"python3", "-c", `import os; print(sorted(set(os.environ) & {"PWD", "OLDPWD", "SHLVL", "evalbox_word", "_"}), os.listdir("/proc/self/fd"))`}
		}, func(t *testing.T, res *result.Result) {
			require.Equal(t, "[] ['0', '1', '2', '3']\n", res.Stdout)
		}},
		"not there": {func(req *sandbox.Request) { req.Command = []string{"no-such-command"} }, func(t *testing.T, res *result.Result) {
			require.Equal(t, result.StatusStartFailed, res.Status)
			require.Equal(t, 127, res.ExitCode)
			require.Equal(t, result.FaultOperator, res.Fault)
		}},
		"not executable": {func(req *sandbox.Request) { req.Command = []string{"/etc/passwd"} }, func(t *testing.T, res *result.Result) {
			require.Equal(t, result.StatusStartFailed, res.Status)
			require.Equal(t, 126, res.ExitCode)
		}},
		"not there, without processes": {func(req *sandbox.Request) { req.Command, req.NoFork = []string{"no-such-command"}, true }, func(t *testing.T, res *result.Result) {
			require.Equal(t, result.StatusStartFailed, res.Status)
			require.Equal(t, 127, res.ExitCode)
		}},
		"a time limit": {func(req *sandbox.Request) {
			req.Command = []string{"python3", "-c", quietly + "quietly(lambda: socket.socket().connect(('1.1.1.1', 80))); import time; time.sleep(60)"}
			req.Limits.Timeout = 2 * time.Second
		}, func(t *testing.T, res *result.Result) {
			require.Equal(t, result.StatusTimedOut, res.Status)
			require.Equal(t, attempts(1), res.Observed.NetworkAttempts)
		}},
		"an exit code": {func(req *sandbox.Request) { req.Command = []string{"sh", "-c", "exit 125"} }, func(t *testing.T, res *result.Result) {
			require.Equal(t, result.StatusExited, res.Status)
			require.Equal(t, 125, res.ExitCode)
		}},
		"says that it did not start, after it tried": {func(req *sandbox.Request) {
			req.Command = []string{"sh", "-c", "cat /etc/shadow >/dev/null; echo 'sandbox-init: no' >&2; exit 125"}
		}, func(t *testing.T, res *result.Result) {
			require.Equal(t, result.StatusExited, res.Status)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := sandbox.Request{Observe: all, Limits: policy.Limits{Timeout: time.Minute, Memory: 256 * policy.MiB, CPUs: 1}}
			test.change(&req)
			res := run(t, r, req)
			require.Empty(t, res.Observed.NetworkWhy+res.Observed.WatchWhy)
			test.check(t, res)
			requireNothingOfAnObservation(t, r, res.ID)
		})
	}
}

// TestEngineObserveImpossible: with a network of the engine, attempts cannot be told from
// what arrives.
func TestEngineObserveImpossible(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	req := python(t, "print(1)")
	req.Transfer = spec.TransferCopy
	req.Observe = &sandbox.Observe{Network: true, Canaries: []string{"/etc/shadow"}}
	res := run(t, r, req)
	require.Equal(t, "1\n", res.Stdout)
	require.Nil(t, res.Observed.NetworkAttempts)
	require.Contains(t, res.Observed.NetworkWhy, "they are copied")
	require.Contains(t, res.Observed.WatchWhy, "they are copied")
	require.Empty(t, res.Observed.Watched)
	req.Observe.Required = true
	_, err := r.Run(t.Context(), req)
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
}

// TestEngineObserveCanceled: a run that is canceled while its program is held back, or
// right after, leaves nothing.
func TestEngineObserveCanceled(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := sandbox.Request{Command: []string{"sleep", "60"}, Observe: &sandbox.Observe{Network: true, Required: true},
		Limits: policy.Limits{Timeout: time.Minute, Grace: time.Second, Memory: 64 * policy.MiB, CPUs: 1}}
	hooks := sandbox.Hooks{Started: cancel}
	res, err := r.Run(ctx, req, hooks)
	require.NoError(t, err)
	require.Equal(t, result.StatusCanceled, res.Status)
	require.Equal(t, attempts(0), res.Observed.NetworkAttempts)
	requireNothingOfAnObservation(t, r, res.ID)
}
