//go:build unix

package sandbox

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// TestSpecialFilesAreHidden: what leads to a process of the host is hidden wherever a
// mount or the input shows it.
func TestSpecialFilesAreHidden(t *testing.T) {
	dir := readable(t, map[string]string{"f": "", "deep/in/f": "", "hidden/f": "", "nested/f": "", "tree/f": ""})
	for _, name := range []string{"fifo", "deep/in/fifo", "hidden/fifo", "nested/fifo", "tree/fifo"} {
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, name), 0o666))
	}
	t.Chdir(dir) // the path of a socket is short
	listener, err := net.Listen("unix", "deep/s.sock")
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, os.Symlink("fifo", filepath.Join(dir, "link")))
	for name, c := range map[string]struct {
		req  Request
		want []string
	}{
		"mount": {Request{Mounts: []Mount{{Source: dir, Target: "/repo"}}},
			[]string{"/repo/deep/in/fifo", "/repo/deep/s.sock", "/repo/fifo", "/repo/hidden/fifo", "/repo/nested/fifo", "/repo/tree/fifo"}},
		"input": {Request{Input: filepath.Join(dir, "deep")}, []string{"/work/input/in/fifo", "/work/input/s.sock"}},
		"what lies on top": {Request{Mounts: []Mount{{Source: dir, Target: "/repo"}, {Source: filepath.Join(dir, "deep/in"), Target: "/repo/nested"}},
			Trees: []Tree{{Source: filepath.Join(dir, "tree"), Target: "/repo/tree"}}, Masks: []string{"/repo/deep/", "/repo/hidden/"}},
			[]string{"/repo/deep/", "/repo/fifo", "/repo/hidden/", "/repo/nested/fifo"}},
		"none": {Request{Mounts: []Mount{{Source: filepath.Join(dir, "f"), Target: "/repo/f"}}, Masks: nil}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			req := c.req
			req.ID, req.Image, req.Command = "r1", "debian", []string{"x"}
			fake := enginetest.NewFake(nil)
			r := newFakeRunner(t, fake)
			res, err := r.Run(t.Context(), req)
			require.NoError(t, err)
			var got []string
			for _, mask := range fake.Created[0].Class.Masks {
				name := mask.Target
				if mask.Dir {
					name += "/"
				}
				got = append(got, name)
			}
			require.ElementsMatch(t, c.want, got)
			if len(c.want) == 0 {
				require.NotContains(t, fmt.Sprint(res.Warnings), "FIFOs")
			} else {
				require.Contains(t, fmt.Sprint(res.Warnings), "sockets, FIFOs and devices of the host are hidden")
			}
		})
	}
}

func TestTooManySpecialFilesAreRefused(t *testing.T) {
	dir := readable(t, map[string]string{"f": ""})
	for i := range 101 {
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, fmt.Sprint(i)), 0o666))
	}
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	req := command("x")
	req.Mounts = []Mount{{Source: dir, Target: "/repo"}}
	_, err := r.Run(t.Context(), req)
	require.ErrorContains(t, err, "shows more than 100 sockets, FIFOs and devices")
	require.Empty(t, leftBehind(t, r, fake))
}
