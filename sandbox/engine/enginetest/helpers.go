package enginetest

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// helpers has the programs of the other tests, by the name of their job.
var helpers = map[string]struct {
	python string
	fake   func(p *Program) int
}{
	"nothing": {"pass", prints("")},
	"sleeps":  {sleeps, fakeSleeps},
	"ignores": {ignores, fakeIgnores},
	"prints": {"import time\nfor i in range(20):\n    print(i, flush=True)\n    time.sleep(0.1)\nprint('end')\n", func(p *Program) int {
		for i := range 20 {
			p.Print(fmt.Sprintln(i))
			p.Sleep(20 * time.Millisecond)
		}
		p.Print("end\n")
		return 0
	}},
	"spins": {"import time\nb = bytearray(16 << 20)\nprint('ready')\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass\n", fakeSleeps},
	"mounts": {mountsProgram, func(p *Program) int {
		text, err := os.ReadFile(p.Path("/data/ro/file"))
		if err != nil || os.WriteFile(p.Path("/data/rw/new"), text, 0o644) != nil {
			return 1
		}
		p.Print("errno 30 errno 30 errno 30 inside inside\n")
		return 0
	}},
	"masked": {"import os\nprint(os.listdir('/data/keys'), repr(open('/data/secret').read()), open('/data/open').read())\n" +
		"for path in ('/data/keys/x', '/data/secret'):\n    try: open(path, 'w')\n    except OSError: print('refused')\n",
		prints("[] '' open\nrefused\nrefused\n")},
	"staging": {"import os\nprint(open('/work/input/a').read(), os.path.islink('/work/input/link'))\nos.mkdir('/work/final/d')\nopen('/work/final/d/out', 'w').write('out')\n",
		func(p *Program) int {
			text, err := os.ReadFile(p.Path("/work/input/a"))
			if err != nil || os.Mkdir(p.Final("d"), 0o755) != nil || os.WriteFile(p.Final("d/out"), []byte("out"), 0o644) != nil {
				return 1
			}
			_, err = os.Readlink(p.Path("/work/input/link"))
			p.Print(string(text) + map[bool]string{true: " True\n", false: " False\n"}[err == nil])
			return 0
		}},
	"relayed": {relayProgram, func(p *Program) int {
		for range 3 {
			conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.Path(spec.EgressDir + "/" + spec.EgressSocket), Net: "unix"})
			if err != nil {
				return 1
			}
			_, _ = io.WriteString(conn, "hello")
			_ = conn.CloseWrite() // without it there is no answer
			answer, _ := io.ReadAll(conn)
			_ = conn.Close()
			p.Print(string(answer) + "\n")
		}
		return 0
	}},
	helperNoDirectory: {"pass", prints("")},
}

const (
	helperNoDirectory = "no directory"
	relayProgram      = `
import socket
for _ in range(3):
    s = socket.create_connection(("127.0.0.1", 3128), 10)
    s.sendall(b"hello")
    s.shutdown(socket.SHUT_WR)
    answer = b""
    while piece := s.recv(99): answer += piece
    print(answer.decode())
    s.close()
`
	mountsProgram = `
def tell(f):
    try: return f()
    except OSError as e: return "errno %d" % e.errno
print(*(tell(lambda: open(path, "w").close()) for path in ("/data/ro/file", "/data/ro/new", "/data/one")),
      open("/data/ro/file").read(), open("/data/one").read())
open("/data/rw/new", "w").write(open("/data/ro/file").read())
`
)

// openDir is a directory that the engine's containers may write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}
