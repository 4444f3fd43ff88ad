//go:build linux

package sandbox_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/sandbox"
)

// TestEngineHidesWaysToTheHost: a mount that cannot be written is no way to a process
// of the host either.
func TestEngineHidesWaysToTheHost(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "hide") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	sock, fifo := filepath.Join(dir, "sub/s.sock"), filepath.Join(dir, "fifo")
	listener, err := net.Listen("unix", sock)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	require.NoError(t, os.Chmod(sock, 0o777))
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HOST")
			_ = conn.Close()
		}
	}()
	require.NoError(t, unix.Mkfifo(fifo, 0o666))
	require.NoError(t, os.Chmod(fifo, 0o666))
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reader.Close()) })
	req := python(t, `
import os, socket
for base in "/repo", "/work/input":
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(base + "/sub/s.sock")
        print("GOT", s.recv(9))
    except OSError as e: print(type(e).__name__)
    try:
        print("WROTE", os.write(os.open(base + "/fifo", os.O_WRONLY | os.O_NONBLOCK), b"x"))
    except OSError as e: print(type(e).__name__)
    print(os.stat(base + "/fifo").st_size)
`)
	req.Input = dir
	req.Mounts = []sandbox.Mount{{Source: dir, Target: "/repo"}}
	res := run(t, newRunner(t), req)
	require.Zero(t, res.ExitCode, res.Stderr)
	require.NotContains(t, res.Stdout, "GOT")
	require.NotContains(t, res.Stdout, "WROTE")
	require.Contains(t, fmt.Sprint(res.Warnings), "4 sockets, FIFOs and devices of the host are hidden")
}
