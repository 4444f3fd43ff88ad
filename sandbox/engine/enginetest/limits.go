package enginetest

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/ends"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// facts is a program that prints everything it can find out about its container.
const facts = `
import json, os, resource, socket
def tell(f):
    try: return f()
    except OSError as e: return "errno %d" % e.errno
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
size = lambda path: os.statvfs(path).f_blocks * os.statvfs(path).f_frsize
def fill(path, mebibytes):
    with open(path, "wb", buffering=0) as f:
        for _ in range(mebibytes): f.write(bytes(1 << 20))
def files():
    kept = []
    try:
        while True: kept.append(os.open("/", os.O_RDONLY))
    except OSError as e: return [len(kept) + 3, e.errno]
    finally:
        for fd in kept: os.close(fd)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) == -1: raise OSError(ctypes.get_errno(), "")
    return "done"
print(json.dumps({
    "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()],
    "status": {key: status[key].strip() for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")},
    "root": tell(lambda: open("/evil", "w").close()), "usr": tell(lambda: open("/usr/evil", "w").close()),
    "proc": tell(lambda: open("/proc/sys/kernel/core_pattern", "w").close()), "sys": tell(lambda: open("/sys/evil", "w").close()),
    "core": resource.getrlimit(resource.RLIMIT_CORE), "nofile": resource.getrlimit(resource.RLIMIT_NOFILE), "files": tell(files),
    "sizes": [size(path) for path in ("/tmp", "/work", "/dev/shm")],
    "fill": [tell(lambda: fill(path + "/big", 17)) for path in ("/tmp", "/work", "/dev/shm")],
    "inodes": os.statvfs("/tmp").f_files,
    "unshare": tell(lambda: call(272, 0x10000000)), "io_uring": tell(lambda: call(425, 1, 0)),
    "pid": os.getpid() != 1, "hostname": socket.gethostname(),
}))
`

type factsSeen struct {
	IDs      []any             `json:"ids"`
	Status   map[string]string `json:"status"`
	Root     string            `json:"root"`
	Usr      string            `json:"usr"`
	Proc     string            `json:"proc"`
	Sys      string            `json:"sys"`
	Core     []int             `json:"core"`
	NoFile   []int             `json:"nofile"`
	Files    []int             `json:"files"`
	Sizes    []int64           `json:"sizes"`
	Fill     []string          `json:"fill"`
	Inodes   int64             `json:"inodes"`
	Unshare  string            `json:"unshare"`
	IOUring  string            `json:"io_uring"`
	Hostname string            `json:"hostname"`
	PID      bool              `json:"pid"`
}

func checkFacts(t *testing.T, got observed) {
	var seen factsSeen
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &seen), got.stdout+got.stderr)
	none := "0000000000000000"
	id := float64(userID)
	assert.Equal(t, []any{id, id, id, id}, seen.IDs[:4])
	assert.Subset(t, []any{id}, seen.IDs[4], "groups")
	assert.Equal(t, map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2"}, seen.Status)
	readOnly, noSpace := fmt.Sprint("errno ", int(syscall.EROFS)), fmt.Sprint("errno ", int(syscall.ENOSPC))
	assert.Equal(t, readOnly, seen.Root)
	assert.Contains(t, []string{readOnly, "errno 13"}, seen.Usr)
	assert.Contains(t, []string{readOnly, "errno 13"}, seen.Proc)
	assert.Contains(t, []string{readOnly, "errno 13"}, seen.Sys)
	assert.Equal(t, []int{0, 0}, seen.Core)
	assert.Equal(t, []int{noFile, noFile}, seen.NoFile)
	assert.Equal(t, []int{noFile, int(syscall.EMFILE)}, seen.Files)
	assert.Equal(t, []int64{tmpSize, tmpSize, shmSize}, seen.Sizes)
	assert.Equal(t, []string{noSpace, noSpace, noSpace}, seen.Fill)
	assert.EqualValues(t, 1000, seen.Inodes)
	assert.Equal(t, "errno 1", seen.Unshare)
	assert.Contains(t, []string{"errno 1", "errno 38"}, seen.IOUring)
	assert.Equal(t, spec.HostName, seen.Hostname)
	assert.True(t, seen.PID)
}

// networkFacts is a program that prints the addresses that it can reach.
const networkFacts = `
import os, socket, threading, time
print("interfaces", [name for _, name in socket.if_nameindex()])
def talk(family, where, name):
    server = socket.socket(family)
    server.bind((where, 0))
    server.listen()
    client = socket.create_connection((name, server.getsockname()[1]), 5)
    server.accept()[0].sendall(b"x")
    print(name, client.recv(1))
talk(socket.AF_INET, "127.0.0.1", "127.0.0.1")
if os.path.exists("/proc/net/if_inet6"): talk(socket.AF_INET6, "::1", "::1")
else: print("::1 b'x'")
talk(socket.AF_INET, "127.0.0.1", "localhost")
def refused(name, f):
    began = time.monotonic()
    try: f()
    except OSError: print(name, "refused", time.monotonic() - began < 2)
    else: print(name, "done")
refused("connect", lambda: socket.create_connection(("192.0.2.1", 80), 10))
refused("metadata", lambda: socket.create_connection(("169.254.169.254", 80), 10))
refused("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
refused("lookup", lambda: socket.getaddrinfo("example.com", 80))
refused("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
`

func limitCases() []programCase {
	return []programCase{
		{Program: ends.Program{Name: "limits", Python: facts, Stdout: ends.Anything}, check: checkFacts},
		{Program: ends.Program{Name: "network", Python: networkFacts, Stdout: "interfaces ['lo']\n127.0.0.1 b'x'\n::1 b'x'\nlocalhost b'x'\n" +
			"connect refused True\nmetadata refused True\nudp refused True\nlookup refused True\nraw refused True\n"}},
		{Program: ends.Program{Name: "cpus", Python: "import os, time\nos.fork()\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\n"},
			class: func(class *spec.Class) { class.Cgroup.NanoCPUs = 5e8 },
			check: func(t *testing.T, got observed) {
				if got.end.Usage.Source == "" {
					t.Log("the engine reports no usage")
					return
				}
				assert.Less(t, got.end.Usage.CPU.Seconds(), 0.5*got.end.Duration.Seconds()+0.8)
			}},
		{Program: ends.Program{Name: "no fork is of one job", Python: "import subprocess; print(subprocess.run(['true']).returncode)", Stdout: "0\n"}},
	}
}
