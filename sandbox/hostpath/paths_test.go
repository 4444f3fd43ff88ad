//go:build linux

package hostpath

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// hostDirs is a little host: a home, a state directory and a place for the rest.
type hostDirs struct{ base, home, state, place string }

func newHostDirs(t *testing.T) hostDirs {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	h := hostDirs{base, filepath.Join(base, "home/me"), filepath.Join(base, "var/state"), filepath.Join(base, "place")}
	for _, dir := range []string{h.home, h.state, h.place} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	t.Setenv("HOME", h.home)
	t.Chdir(h.place)
	return h
}

// mountTmpfs mounts a file system in memory; only root can.
func mountTmpfs(t *testing.T, dir, options string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, unix.Mount("evalbox-test", dir, "tmpfs", 0, options))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

func TestResolveScript(t *testing.T) {
	h := newHostDirs(t)
	treetest.Write(t, h.place, map[string]string{"main.py": "print(1)", "folder/": "", "big.py": ""})
	require.NoError(t, os.Truncate("big.py", MaxScript+1))
	require.NoError(t, os.Symlink("main.py", "link.py"))
	require.NoError(t, os.Symlink("nowhere.py", "dangling.py"))
	require.NoError(t, os.Symlink("loop.py", "loop.py"))
	require.NoError(t, unix.Mkfifo("fifo.py", 0o600))
	real := filepath.Join(h.place, "main.py")

	for _, path := range []string{"main.py", "./main.py", real, "link.py", "folder/../main.py"} {
		req, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Script: path})
		require.NoError(t, err, path)
		require.Equal(t, real, req.Script, path)
	}
	for path, rule := range map[string]string{
		"missing.py":  "does not exist",
		"dangling.py": "does not exist",
		"folder":      "is a directory, not a program",
		"fifo.py":     "is not a regular file",
		"/dev/zero":   "is not a regular file",
		"big.py":      "has 67108865 bytes; at most 67108864",
		"loop.py":     "cannot be used",
		"main.py/x":   "cannot be used",
		"a\x00b":      "cannot be used",
	} {
		_, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Script: path})
		requirePathError(t, err, "script", path, rule)
	}
}

func requirePathError(t *testing.T, err error, field, path, rule string) {
	t.Helper()
	var broken *spec.PathError
	require.ErrorAs(t, err, &broken, "%s: %v", path, err)
	require.Equal(t, field, broken.Field, path)
	require.Equal(t, path, broken.Path)
	require.Contains(t, broken.Rule, rule, path)
	require.Equal(t, 1, strings.Count(err.Error(), strconv.Quote(path)), "the path is named once: %v", err)
}

func TestResolveInput(t *testing.T) {
	h := newHostDirs(t)
	treetest.Write(t, h.place, map[string]string{"data/x": "", "file": "", "sock/": "", "has-link/": ""})
	listener, err := net.Listen("unix", "sock/docker.sock")
	require.NoError(t, err)
	defer listener.Close()
	for link, target := range map[string]string{
		"to-data": "data", "to-home": h.home, "to-root": "/", "to-nothing": "nowhere", "to-state": h.state,
	} {
		require.NoError(t, os.Symlink(target, link))
	}

	for _, path := range []string{"data", "data/", "./data/../data", "to-data", h.place + "/data"} {
		req, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Input: path})
		require.NoError(t, err, path)
		require.Equal(t, h.place+"/data", req.Input, path)
	}
	// A directory in the home is what people have; the current directory is only read.
	treetest.Write(t, h.home, map[string]string{"data/": ""})
	for _, path := range []string{h.home + "/data", "."} {
		_, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Input: path})
		require.NoError(t, err, path)
	}

	for path, rule := range map[string]string{
		"missing":       "does not exist",
		"to-nothing":    "does not exist",
		"file":          "is not a directory",
		"/":             "root of a file system",
		"to-root":       "root of a file system",
		h.home:          "is or holds your home directory",
		h.home + "/..":  "is or holds your home directory",
		"to-home":       "is or holds your home directory",
		h.base:          "is or holds",
		h.state:         "is or holds the state directory",
		"to-state":      "is or holds the state directory",
		h.base + "/var": "is or holds the state directory",
		"sock":          "holds docker.sock",
		"/dev":          "is a directory of the system",
	} {
		_, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Input: path})
		var broken *spec.PathError
		require.ErrorAs(t, err, &broken, "%s: %v", path, err)
		require.Equal(t, "input", broken.Field, path)
		require.Equal(t, path, broken.Path)
		require.Contains(t, broken.Rule, rule, path)
	}
}

// A state directory or a home that is reached through a link is the same directory.
func TestLinksDoNotHideProtectedFolders(t *testing.T) {
	h := newHostDirs(t)
	link := filepath.Join(h.base, "link")
	require.NoError(t, os.Symlink("var", link))
	_, err := Protected{StateDir: link + "/state"}.resolvePaths(spec.Request{Input: h.base + "/var"})
	require.ErrorContains(t, err, "is or holds the state directory")
	_, err = Protected{StateDir: link + "/state/not/made/yet"}.resolvePaths(spec.Request{Input: h.base + "/var"})
	require.ErrorContains(t, err, "is or holds the state directory")

	homes := filepath.Join(h.base, "homes")
	require.NoError(t, os.Symlink("home", homes))
	t.Setenv("HOME", homes+"/me")
	_, err = Protected{StateDir: h.state}.resolvePaths(spec.Request{Input: h.base + "/home"})
	require.ErrorContains(t, err, "is or holds your home directory")

	require.NoError(t, os.Symlink("place", filepath.Join(h.base, "places")))
	t.Chdir(filepath.Join(h.base, "places"))
	_, err = Protected{StateDir: h.state}.resolvePaths(spec.Request{Final: h.place})
	require.ErrorContains(t, err, "is or holds the current directory")
}

func TestInputWithAMountPointBelow(t *testing.T) {
	if os.Geteuid() != 0 {
		return // /dev in TestResolveInput shows the rule without mounting
	}
	h := newHostDirs(t)
	treetest.Write(t, h.place, map[string]string{"data/sub/": "", "data2/": "", "other/": ""})
	mountTmpfs(t, h.place+"/data/sub", "size=64k")
	mountTmpfs(t, h.place+"/other", "size=64k")
	require.NoError(t, unix.Mount(h.place+"/data2", h.place+"/data2", "", unix.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(h.place+"/data2", unix.MNT_DETACH)) })

	for field, req := range map[string]spec.Request{
		"input": {Input: "data"}, "final": {Final: "data"},
	} {
		_, err := Protected{StateDir: h.state}.resolvePaths(req)
		requirePathError(t, err, field, "data", "has the mount point "+h.place+"/data/sub in it")
	}
	for _, path := range []string{"data/sub", "data2", "other"} {
		_, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Input: path})
		require.NoError(t, err, "a mount point itself is a directory like others")
	}
}

func TestResolveFinal(t *testing.T) {
	h := newHostDirs(t)
	treetest.Write(t, h.place, map[string]string{
		"final/old": "x", "file": "", "repo/.git/config": "", "worktree/.git": "gitdir: x", "sock/docker.sock": "", "empty/": "",
	})
	for link, target := range map[string]string{"to-final": "final", "to-nothing": "nowhere", "to-home": h.home, "to-repo": "repo", "to-here": "."} {
		require.NoError(t, os.Symlink(target, link))
	}
	for path, want := range map[string]string{
		"final": "final", "to-final": "final", "new": "new", "./new": "new", "new/": "new", "empty": "empty",
		"to-final/new": "final/new", "repo/new": "repo/new", "final/../new": "new",
	} {
		req, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Final: path})
		require.NoError(t, err, path)
		require.Equal(t, filepath.Join(h.place, want), req.Final, path)
	}
	require.NoDirExists(t, "new", "nothing is made")
	require.FileExists(t, "final/old", "nothing is emptied")

	for path, rule := range map[string]string{
		"file":              "is not a directory",
		"missing/new":       "does not exist",
		"to-nothing":        "does not exist",
		"to-nothing/new":    "does not exist",
		"file/new":          "",
		"/":                 "root of a file system",
		h.home:              "is or holds your home directory",
		"to-home":           "is or holds your home directory",
		h.base:              "is or holds",
		h.state:             "is or holds the state directory",
		h.state + "/runs":   "lies in the state directory",
		h.state + "/runs/x": "",
		"repo":              "holds a Git checkout",
		"to-repo":           "holds a Git checkout",
		"worktree":          "holds a Git checkout",
		".":                 "is or holds the current directory",
		"to-here":           "is or holds the current directory",
		h.place:             "is or holds the current directory",
		"sock":              "holds docker.sock",
		"/usr/bin":          "is emptied for the outputs of a run, and is a directory of the system",
	} {
		_, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Final: path})
		var broken *spec.PathError
		require.ErrorAs(t, err, &broken, "%s: %v", path, err)
		require.Equal(t, "final", broken.Field, path)
		require.Contains(t, broken.Rule, rule, path)
	}

	// The records of other runs would be emptied.
	treetest.Write(t, h.state, map[string]string{"runs/x/final/": ""})
	for _, path := range []string{"/runs", "/runs/x", "/runs/x/final", "/new"} {
		_, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Final: h.state + path})
		require.ErrorContains(t, err, "lies in the state directory", path)
	}
	// What an earlier run made may be the next one's input.
	_, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Input: h.state + "/runs/x/final"})
	require.NoError(t, err)
}

// TestTempOfOthers: the temporary files of another process may be the answers of a grading that runs.
func TestTempOfOthers(t *testing.T) {
	h := newHostDirs(t)
	treetest.Write(t, h.state, map[string]string{"tmp/grading-1/input/a.csv": "", "tmp/grading-2/input/a.csv": ""})
	own := h.state + "/tmp/grading-1"
	p := Protected{StateDir: h.state, TempDir: h.state + "/tmp", OwnTemp: func(real string) bool { return fsx.Within(real, own) }}
	require.NoError(t, os.Symlink(h.state+"/tmp/grading-2", "link"))
	for _, dir := range []string{own, h.state + "/tmp/grading-2", "link", h.state + "/tmp"} {
		for field, req := range map[string]spec.Request{
			"script": {Script: dir + "/input/a.csv"},
			"input":  {Input: dir + "/input"},
			"input ": {Input: dir},
			"final":  {Final: dir + "/input"},
			"final ": {Final: dir + "/new"},
			"mount":  {Mounts: []spec.Mount{{Source: dir + "/input", Target: "/work/m"}}},
			"mount ": {Mounts: []spec.Mount{{Source: dir + "/input/a.csv", Target: "/work/m"}}},
			"tree":   {Trees: []spec.Tree{{Source: dir + "/input", Target: "/work/t"}}},
		} {
			if dir == p.TempDir {
				treetest.Write(t, dir, map[string]string{"input/a.csv": ""})
			}
			req.Command = []string{"true"}
			_, _, err := Resolve(t.Context(), req, p)
			if dir == own {
				require.NoError(t, err, field)
				continue
			}
			var broken *spec.PathError
			require.ErrorAs(t, err, &broken, "%s %s", field, dir)
			require.Equal(t, strings.TrimSpace(field), broken.Field)
			require.Contains(t, broken.Rule, "other", "%s %s", field, dir)
		}
	}
}

func TestResolveReportsEveryPath(t *testing.T) {
	h := newHostDirs(t)
	_, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{Script: "no.py", Input: "no-input", Final: "no/final"})
	for _, word := range []string{"script", "input", "final"} {
		require.ErrorContains(t, err, word)
	}
	req, err := Protected{StateDir: h.state}.resolvePaths(spec.Request{})
	require.NoError(t, err)
	require.Equal(t, spec.Request{}, req)
}

func TestMasksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	treetest.Write(t, dir, map[string]string{"secret": "s", "private/key": "k", "sub/x": "x", "other": "o"})
	for name, target := range map[string]string{"l1": "l2", "l2": "sub/../secret", "abs": "/repo/private", "sub/up": "../private/key", "circle": "circle", "host": "/host/p/key"} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	require.NoError(t, os.Link(filepath.Join(dir, "private/key"), filepath.Join(dir, "sub/second")))
	resolve := func(mask string) (*table, error) {
		layout, err := spec.NewLayout(spec.Request{
			Mounts: []spec.Mount{{Source: dir, Target: "/repo"}, {Source: filepath.Join(dir, "private"), Target: "/host/p"}},
			Trees:  []spec.Tree{{Source: filepath.Join(dir, "sub"), Target: "/repo/sub"}},
			Masks:  []string{mask},
		})
		require.NoError(t, err)
		for i := range layout.Entries {
			layout.Entries[i].Dir = true
		}
		got := &table{layout}
		return got, got.resolveMasks(t.Context())
	}
	for mask, want := range map[string][]string{
		"/repo/secret":     {"/repo/secret"},
		"/repo/l1":         {"/repo/secret"},
		"/repo/private":    {"/repo/private/", "/repo/private/key", "/repo/sub/second", "/host/p/", "/host/p/key"},
		"/repo/abs/key":    {"/host/p/key", "/repo/private/key", "/repo/sub/second"},
		"/repo/sub/up":     {"/host/p/key", "/repo/private/key", "/repo/sub/second"},
		"/repo/host":       {"/host/p/key", "/repo/private/key", "/repo/sub/second"},
		"/repo/sub/second": {"/host/p/key", "/repo/private/key", "/repo/sub/second"},
		"/repo/none/x":     nil,
	} {
		got, err := resolve(mask)
		require.NoError(t, err, mask)
		var masks []string
		for _, m := range got.Masks {
			masks = append(masks, m.Text())
		}
		require.ElementsMatch(t, want, masks, mask)
	}
	got, err := resolve("/repo/sub/none/x")
	require.NoError(t, err)
	e, _, _ := got.Lookup("/repo/sub")
	require.Equal(t, []string{"none/x"}, e.Absent)
	_, err = resolve("/repo/circle")
	require.ErrorContains(t, err, "too many links")
}

func BenchmarkHideSpecial(b *testing.B) {
	dir := b.TempDir()
	for i := range 100 {
		sub := filepath.Join(dir, fmt.Sprint(i))
		require.NoError(b, os.Mkdir(sub, 0o755))
		for j := range 1000 {
			require.NoError(b, os.WriteFile(filepath.Join(sub, fmt.Sprint(j)), nil, 0o644))
		}
	}
	layout := spec.Layout{Entries: []spec.Entry{{Role: spec.RoleMount, Source: dir, Target: "/repo", Dir: true}}}
	for b.Loop() {
		_, err := HideSpecial(b.Context(), &layout)
		require.NoError(b, err)
	}
}
