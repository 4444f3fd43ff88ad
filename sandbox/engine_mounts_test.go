//go:build linux

package sandbox_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// project is a directory of the host as a contract has it.
func project(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "project")
	treetest.Write(t, dir, map[string]string{
		"readme.md": "hello", "src/main.py": "print('main')", "src/run.sh": "#!/bin/sh\n", "src/old.txt": "old",
		"src/deep/a/b": "deep", "secret.env": "KEY=canary", "private/key": "canary", "private/more/key": "canary", "data/d.csv": "1,2\n",
	})
	require.NoError(t, os.Chmod(filepath.Join(dir, "src/run.sh"), 0o755))
	require.NoError(t, os.Symlink("main.py", filepath.Join(dir, "src/link")))
	require.NoError(t, os.Symlink("../secret.env", filepath.Join(dir, "src/to-secret")))
	require.NoError(t, os.Symlink("private", filepath.Join(dir, "to-private")))
	require.NoError(t, os.Link(filepath.Join(dir, "secret.env"), filepath.Join(dir, "alias.env")))
	require.NoError(t, os.Link(filepath.Join(dir, "private/key"), filepath.Join(dir, "src/alias-key")))
	return dir
}

// ways runs a test with files mounted and with files copied.
func ways(t *testing.T, do func(t *testing.T, way string)) {
	for _, way := range []string{spec.TransferBind, spec.TransferCopy} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			do(t, way)
		})
	}
}

const showAll = `
import os
for base in "/repo", "/host/x", "/work/extra":
    for dir, folders, files in sorted(os.walk(base)):
        folders.sort()
        for name in sorted(files):
            full = os.path.join(dir, name)
            try: text = open(full).read()
            except OSError as e: text = type(e).__name__
            print(full, repr(text))
        if not folders and not files: print(dir, "is empty")
`

func TestEngineMountsAreReadOnlyAndMasksHide(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, way string) {
		dir := project(t)
		before := hashes(t, dir)
		req := python(t, `
import os
print(os.getcwd(), sorted(os.listdir(".")))
`+showAll+`
for name in "/repo/new", "/repo/src/main.py", "/repo/secret.env", "/repo/private/x", "/work/extra", "/host/x/new":
    try:
        open(name, "w")
        print("WROTE", name)
    except OSError as e: print(name, type(e).__name__)
for name in "/repo/secret.env", "/repo/private":
    for do in os.remove, os.rmdir, lambda n: os.rename(n, n + "2"), lambda n: os.chmod(n, 0o777):
        try:
            do(name)
            print("CHANGED", name)
        except OSError: pass
print(os.listdir("/repo/private"), os.listdir("/repo/to-private"), repr(open("/repo/src/to-secret").read()))
print("canary" in open("/proc/self/mountinfo").read())
`)
		req.Transfer = way
		req.Mounts = []sandbox.Mount{{Source: dir, Target: "/repo"}, {Source: filepath.Join(dir, "private"), Target: "/host/x"},
			{Source: filepath.Join(dir, "readme.md"), Target: "/work/extra"}}
		req.Masks = []string{"/repo/src/to-secret", "/repo/to-private/key", "/repo/private/more", "/repo/nothing/here"}
		req.WorkDir = "/repo/src/deep"
		res := run(t, newRunner(t), req)
		require.Zero(t, res.ExitCode, res.Stderr)
		require.NotContains(t, res.Stdout, "canary")
		require.NotContains(t, res.Stdout, "WROTE")
		require.NotContains(t, res.Stdout, "CHANGED")
		require.Contains(t, res.Stdout, "/repo/src/deep ['a']")
		require.Contains(t, res.Stdout, `/repo/src/main.py "print('main')"`)
		for _, hidden := range []string{"/repo/secret.env ''", "/repo/alias.env ''", "/repo/private/key ''", "/repo/src/alias-key ''",
			"/host/x/key ''", "/repo/private/more is empty", "/host/x/more is empty"} {
			require.Contains(t, res.Stdout, hidden)
		}
		require.Equal(t, before, hashes(t, dir))
	})
}

// hashes are the contents and modes below a directory.
func hashes(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		info, infoErr := entry.Info()
		require.NoError(t, infoErr)
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			text += " " + string(content)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(name)
			require.NoError(t, err)
			text += " -> " + to
		}
		rel, _ := filepath.Rel(dir, name)
		found[rel] = text
		return err
	}))
	return found
}

func changedPaths(entries []result.TreeEntry) (paths []string) {
	for _, e := range entries {
		paths = append(paths, fmt.Sprintf("%s %s %s", e.Path, e.Kind, e.Mode))
	}
	return paths
}

func skippedPaths(skipped []result.SkippedOutput) (paths []string) {
	for _, s := range skipped {
		paths = append(paths, s.Path+": "+s.Reason)
	}
	return paths
}

const treeProgram = `
import os, socket
os.chdir("/repo/src")
print(sorted(os.listdir(".")), os.listdir("/repo/data"), open("/repo/data/d.csv").read())
print("canary" in "".join(open(os.path.join(d, f)).read() for d, _, fs in os.walk("/repo") for f in fs if os.path.exists(os.path.join(d, f))))
open("main.py", "w").write("print('changed')")
os.chmod("run.sh", 0o600)
st = os.stat("deep/a/b")
open("deep/a/b", "r+").write("DEEP"); os.utime("deep/a/b", ns=(st.st_atime_ns, st.st_mtime_ns))
os.remove("old.txt"); os.remove("link")
os.makedirs("made/here"); open("made/here/x", "w").write("x"); open("made/new", "w").write("new"); os.mkdir("empty")
os.symlink("/etc/passwd", "made/link"); os.mkfifo("made/fifo"); socket.socket(socket.AF_UNIX).bind("made/socket")
os.link("made/new", "made/again")
open("suid", "w").write("s"); os.chmod("suid", 0o4755)
open("odd\n\x1b[31m", "w").write("odd")
for name in "/repo/data/new", "/repo/readme.md", "/repo/src/alias-key":
    try:
        open(name, "w").write("over")
        print("wrote", name)
    except OSError as e: print(name, type(e).__name__)
`

func TestEngineTreesAreCopiedAndTheirChangesApplied(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, way string) {
		dir := project(t)
		require.NoError(t, os.Mkdir(filepath.Join(dir, "src/skip"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "src/skip/x"), nil, 0o644))
		before := hashes(t, dir)
		req := python(t, treeProgram)
		req.Transfer = way
		req.Mounts = []sandbox.Mount{{Source: dir, Target: "/repo"}}
		req.Trees = []sandbox.Tree{{Source: filepath.Join(dir, "src"), Target: "/repo/src", Exclude: []string{"skip"}}, {Target: "/work/scratch"}}
		req.Masks = []string{"/repo/private", "/repo/secret.env", "/repo/src/forbidden"}
		r := newRunner(t)
		res := run(t, r, req)
		require.Zero(t, res.ExitCode, res.Stderr)
		require.Equal(t, "['alias-key', 'deep', 'link', 'main.py', 'old.txt', 'run.sh', 'to-secret'] ['d.csv'] 1,2\n\nFalse\n"+
			"/repo/data/new OSError\n/repo/readme.md OSError\n/repo/src/alias-key OSError\n", res.Stdout)
		require.Equal(t, before, hashes(t, dir), "nothing changes before it is applied")
		require.Len(t, res.Trees, 2)
		changed := res.Trees[0]
		if changed.Target != "/repo/src" {
			changed = res.Trees[1]
		}
		require.Equal(t, "/repo/src", changed.Target)
		require.True(t, changed.Complete, res.Warnings)
		require.Equal(t, []string{"empty directory 0755", "made directory 0755", "made/again file 0644", "made/here directory 0755",
			"made/here/x file 0644", "made/new file 0644", "odd\\n\\x1b[31m file 0644", "suid file 0755"}, changedPaths(changed.Created))
		require.Equal(t, []string{"deep/a/b file 0644", "main.py file 0644", "run.sh file 0600"}, changedPaths(changed.Changed))
		require.Equal(t, []string{"link symlink 0777", "old.txt file 0644"}, changedPaths(changed.Deleted))
		require.Equal(t, []string{"made/fifo: not a regular file", "made/link: not a regular file", "made/socket: not a regular file"}, skippedPaths(changed.Skipped))
		require.Empty(t, changed.NotCopied)

		// Meanwhile the directory changes on the host.
		require.NoError(t, os.WriteFile(filepath.Join(dir, "src/main.py"), []byte("edited"), 0o644))
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "src/empty"), 0o755))
		report, err := r.ApplyTree(t.Context(), res.ID, "/repo/src", tree.ApplyOptions{})
		require.NoError(t, err)
		states := map[string]string{}
		for _, c := range report.Changes {
			states[c.Path] = c.State + ": " + c.Reason
		}
		require.Equal(t, map[string]string{
			"empty":         "applied: ",
			"made":          "applied: ",
			"made/again":    "applied: ",
			"made/here":     "applied: ",
			"made/here/x":   "applied: ",
			"made/new":      "applied: ",
			`odd\n\x1b[31m`: "applied: ",
			"suid":          "applied: ",
			"deep/a/b":      "applied: ",
			"main.py":       "conflict: was changed meanwhile, and is not replaced",
			"run.sh":        "applied: ",
			"link":          "skipped: is a symlink, and only files and directories are applied",
			"old.txt":       "applied: ",
		}, states)
		after := hashes(t, dir)
		require.Equal(t, "-rw-r--r-- edited", after["src/main.py"])
		require.Equal(t, "-rw-r--r-- DEEP", after["src/deep/a/b"])
		require.Equal(t, "-rw------- #!/bin/sh\n", after["src/run.sh"])
		require.Equal(t, "-rwxr-xr-x s", after["src/suid"])
		require.Equal(t, "-rw-r--r-- x", after["src/made/here/x"])
		require.NotContains(t, after, "src/old.txt")
		require.Contains(t, after, "src/link")
		for name := range after {
			require.NotContains(t, name, ".evalbox-")
		}
		// A second time changes nothing.
		again, err := r.ApplyTree(t.Context(), res.ID, "/repo/src", tree.ApplyOptions{})
		require.NoError(t, err)
		require.Equal(t, report.Changes, again.Changes)
		require.Equal(t, after, hashes(t, dir))
	})
}

func TestEngineTreesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), make([]byte, 3<<20), 0o644))
	r := newRunner(t)
	req := python(t, "pass")
	req.Trees = []sandbox.Tree{{Source: dir, Target: "/repo"}}
	req.Limits.Disk = 2 * policy.MiB
	_, err := r.Run(t.Context(), req)
	require.ErrorContains(t, err, "holds at least 3145728 bytes in 1 entries; at most 2097152 bytes")
	records, err := r.Store().List()
	require.NoError(t, err)
	require.Empty(t, records, "nothing is left behind")

	ways(t, func(t *testing.T, way string) {
		req := python(t, "import time\ni = 0\nwhile True: open(f'/repo/more{i}', 'wb').write(bytes(1 << 20)); i += 1; time.sleep(0.01)\n")
		req.Trees = []sandbox.Tree{{Source: dir, Target: "/repo"}}
		req.Transfer, req.Limits.Disk = way, 30*policy.MiB
		res := run(t, newRunner(t), req)
		require.Equal(t, result.StatusDiskLimit, res.Status, res.Explanation)
	})
}

func TestEngineHostileTrees(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{
		"many files": "import os\nfor i in range(100_000): open(f'/repo/f{i}', 'w').close()\n",
		"deep":       "import os\nos.chdir('/repo')\nfor i in range(3000): os.mkdir('d'); os.chdir('d')\nopen('x', 'w').write('x')\n",
		"closed":     "import os\nopen('/repo/keep', 'a').write('x'); os.mkdir('/repo/shut'); open('/repo/shut/x', 'w'); os.chmod('/repo/shut', 0); os.chmod('/repo/sub', 0); os.chmod('/repo', 0)\n",
		"links for directories": "import os, shutil\nshutil.rmtree('/repo/sub'); os.symlink('/etc', '/repo/sub'); os.remove('/repo/keep'); os.symlink('/etc/passwd', '/repo/keep')\n" +
			"os.symlink('..', '/repo/up'); os.symlink('/', '/repo/root')\n",
		"sparse": "f = open('/repo/huge', 'w'); f.truncate(19 << 30); g = open('/repo/keep', 'r+'); g.truncate(18 << 30)\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ways(t, func(t *testing.T, way string) {
				dir := t.TempDir()
				require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/in"), []byte("in"), 0o644))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "keep"), []byte("kept"), 0o644))
				require.NoError(t, os.Chmod(dir, 0o755))
				before := hashes(t, dir)
				req := python(t, program)
				req.Transfer = way
				req.Trees = []sandbox.Tree{{Source: dir, Target: "/repo"}}
				r := newRunner(t)
				res := run(t, r, req)
				require.Zero(t, res.ExitCode, res.Stderr)
				require.Len(t, res.Trees, 1)
				_, err := r.ApplyTree(t.Context(), res.ID, "/repo", tree.ApplyOptions{})
				require.NoError(t, err)
				after := hashes(t, dir)
				for file, text := range before {
					if name != "closed" {
						require.Equal(t, text, after[file], file)
					}
				}
				for file, text := range after {
					require.NotContains(t, text, " -> ", file)
				}
				require.NotContains(t, strings.Join(skippedPaths(res.Trees[0].Skipped), " "), "passwd")
				require.NoError(t, r.Store().Remove(res.ID))
			})
		})
	}
}

// TestEngineMountInNoInput: without an input, what a mount there needs is made.
func TestEngineMountInNoInput(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	host := t.TempDir()
	require.NoError(t, os.Chmod(host, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(host, "f"), []byte("text"), 0o644))
	for _, way := range []string{spec.TransferBind, spec.TransferCopy} {
		req := python(t, "print(open('/work/input/data/f').read(), open('/work/input/deep/file').read())")
		req.Transfer = way
		req.Mounts = []sandbox.Mount{{Source: host, Target: "/work/input/data"}, {Source: filepath.Join(host, "f"), Target: "/work/input/deep/file"}}
		require.Equal(t, "text text\n", run(t, r, req).Stdout, way)
	}
}
