package contract

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// host is a directory with a root and things beside it.
func host(t *testing.T) string {
	t.Helper()
	dir := fsx.RealPath(t.TempDir())
	for _, name := range []string{"root/src/deep", "root/out", "root/secret", "deps", "state/runs"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	for _, name := range []string{"root/src/a", "root/secret/key", "root/top", "deps/lib", "elsewhere"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
	}
	link := func(to, name string) { require.NoError(t, os.Symlink(to, filepath.Join(dir, name))) }
	link("src", "root/to-src")
	link("../deps", "root/to-deps")
	link(filepath.Join(dir, "elsewhere"), "root/src/to-elsewhere")
	link("a", "root/src/to-a")
	link("../secret/key", "root/src/to-key")
	link("nothing", "root/dangling")
	link("loop", "root/loop")
	require.NoError(t, os.Link(filepath.Join(dir, "root/secret/key"), filepath.Join(dir, "root/src/alias")))
	return dir
}

// resolveIn resolves a contract in a host directory.
func resolveIn(dir string, level policy.FilesystemLevel, change func(c *Contract)) (Resolved, []string) {
	c := Contract{Inputs: Inputs{WorkingDirectory: "src"}}
	change(&c)
	r, violations := Resolve(c, filepath.Join(dir, "root"), Effective{FilesystemLevel: level},
		[]string{filepath.Join(dir, "deps"), "/bin"}, []string{filepath.Join(dir, "state")})
	var rules []string
	for _, v := range violations {
		rules = append(rules, strings.ReplaceAll(v.Code+" "+v.Field+": "+v.Rule, dir, "DIR"))
	}
	return r, rules
}

func TestResolveLevels(t *testing.T) {
	dir := host(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	files := func(change func(f *Filesystem)) func(c *Contract) {
		return func(c *Contract) { change(&c.Sandbox.Filesystem) }
	}
	for name, test := range map[string]struct {
		level  policy.FilesystemLevel
		change func(c *Contract)
		mounts []sandbox.Mount
		trees  []sandbox.Tree
		masks  []string
	}{
		"minimal": {policy.Minimal, func(*Contract) {}, []sandbox.Mount{{Source: at("root/src"), Target: "/repo/src"}}, nil, nil},
		"minimal, by its name inside": {policy.Minimal, func(c *Contract) { c.Inputs.WorkingDirectory = "/repo/src/deep" },
			[]sandbox.Mount{{Source: at("root/src/deep"), Target: "/repo/src/deep"}}, nil, nil},
		"minimal, the root": {policy.Minimal, func(c *Contract) { c.Inputs.WorkingDirectory = "." },
			[]sandbox.Mount{{Source: at("root"), Target: "/repo"}}, nil, nil},
		"through a link": {policy.Minimal, func(c *Contract) { c.Inputs.WorkingDirectory = "to-src/deep" },
			[]sandbox.Mount{{Source: at("root/src/deep"), Target: "/repo/src/deep"}}, nil, nil},
		"standard": {policy.Standard, func(*Contract) {}, []sandbox.Mount{{Source: at("root"), Target: "/repo"}},
			[]sandbox.Tree{{Source: at("root/src"), Target: "/repo/src"}}, nil},
		"standard, the root": {policy.Standard, func(c *Contract) { c.Inputs.WorkingDirectory = "" }, nil,
			[]sandbox.Tree{{Source: at("root"), Target: "/repo"}}, nil},
		"extended": {policy.Extended, files(func(f *Filesystem) { f.Read, f.Write = []string{"to-deps", "top"}, []string{"out", "src/deep"} }),
			[]sandbox.Mount{{Source: at("deps"), Target: "/host" + at("deps")}, {Source: at("root"), Target: "/repo"}},
			[]sandbox.Tree{{Source: at("root/out"), Target: "/repo/out"}, {Source: at("root/src"), Target: "/repo/src"}}, nil},
		"elevated": {policy.Elevated, files(func(f *Filesystem) { f.Read, f.Write = []string{at("elsewhere"), "/etc"}, []string{at("deps")} }),
			[]sandbox.Mount{{Source: "/etc", Target: "/host/etc"}, {Source: at("elsewhere"), Target: "/host" + at("elsewhere")}, {Source: at("root"), Target: "/repo"}},
			[]sandbox.Tree{{Source: at("deps"), Target: "/host" + at("deps")}, {Source: at("root/src"), Target: "/repo/src"}}, nil},
		"denied": {policy.Standard, files(func(f *Filesystem) {
			f.Deny = []string{"secret", "src/deep", "src/to-key", "secret/key", "src/new", at("deps"), "secret"}
		}),
			[]sandbox.Mount{{Source: at("root"), Target: "/repo"}},
			[]sandbox.Tree{{Source: at("root/src"), Target: "/repo/src"}},
			[]string{"/repo/secret", "/repo/src/deep", "/repo/src/new"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, rules := resolveIn(dir, test.level, test.change)
			require.Empty(t, rules)
			require.Equal(t, test.mounts, r.Mounts)
			require.Equal(t, test.trees, r.Trees)
			require.Equal(t, test.masks, r.Masks)
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	dir := host(t)
	files := func(f Filesystem) func(c *Contract) { return func(c *Contract) { c.Sandbox.Filesystem = f } }
	inputs := func(paths ...string) func(c *Contract) { return func(c *Contract) { c.Inputs.InputFiles = paths } }
	outputs := func(paths ...string) func(c *Contract) { return func(c *Contract) { c.Outputs.OutputFiles = paths } }
	for name, test := range map[string]struct {
		level  policy.FilesystemLevel
		change func(c *Contract)
		rules  []string
	}{
		"work outside by a link": {policy.Minimal, func(c *Contract) { c.Inputs.WorkingDirectory = "to-deps" },
			[]string{"IV-03 inputs.working_directory: leads to DIR/deps, which is not below the root DIR/root"}},
		"work outside": {policy.Elevated, func(c *Contract) { c.Inputs.WorkingDirectory = dir },
			[]string{"IV-03 inputs.working_directory: is not below the root DIR/root"}},
		"work is a file": {policy.Minimal, func(c *Contract) { c.Inputs.WorkingDirectory = "top" },
			[]string{"IV-03 inputs.working_directory: is not a directory"}},
		"work is nothing": {policy.Minimal, func(c *Contract) { c.Inputs.WorkingDirectory = "dangling" },
			[]string{"IV-03 inputs.working_directory: does not exist"}},
		"work is a loop": {policy.Minimal, func(c *Contract) { c.Inputs.WorkingDirectory = "loop" },
			[]string{"IV-03 inputs.working_directory: cannot be used: EvalSymlinks: too many links"}},
		"inputs": {policy.Minimal, inputs("a", "deep", "none", "to-elsewhere", "../top", "/etc/passwd", "to-key"), []string{
			"IV-05 inputs.input_files[1]: is not a regular file",
			"IV-05 inputs.input_files[2]: does not exist",
			"IV-03 inputs.input_files[3]: leads to DIR/elsewhere, which is not below the root DIR/root",
			"IV-03 inputs.input_files[4]: is not among what level minimal shows: the working directory",
			"IV-03 inputs.input_files[5]: is not below the root DIR/root",
			"IV-03 inputs.input_files[6]: is not among what level minimal shows: the working directory",
		}},
		"inputs of extended": {policy.Extended, inputs(dir + "/elsewhere"), []string{
			"IV-03 inputs.input_files[0]: is neither below the root nor below what sandbox.filesystem.read and write name"}},
		"input by another name": {policy.Standard, func(c *Contract) {
			c.Inputs.InputFiles = []string{"to-key", "alias", "../secret/key"}
			c.Sandbox.Filesystem.Deny = []string{"secret/key"}
		}, []string{
			"CX-03 inputs.input_files[0]: is hidden by sandbox.filesystem.deny[0]",
			"CX-03 inputs.input_files[1]: is hidden by sandbox.filesystem.deny[0]",
			"CX-03 inputs.input_files[2]: is hidden by sandbox.filesystem.deny[0]",
		}},
		"minimal": {policy.Minimal, files(Filesystem{Read: []string{"top", "src/a"}, Write: []string{"src"}}), []string{
			"CX-03 sandbox.filesystem.read[0]: is not below the working directory; level minimal reads nothing else",
			"CX-03 sandbox.filesystem.write[0]: level minimal writes nothing",
		}},
		"standard": {policy.Standard, files(Filesystem{Read: []string{"top", "to-deps"}, Write: []string{"src/deep", "out"}}), []string{
			"CX-03 sandbox.filesystem.read[1]: leads to DIR/deps, which is not below the root DIR/root; level standard reads nothing else",
			"CX-03 sandbox.filesystem.write[1]: is not below the working directory; level standard writes nothing else",
		}},
		"extended": {policy.Extended, files(Filesystem{Read: []string{"/usr/share", dir + "/elsewhere", "src/to-elsewhere", dir + "/deps/lib"}, Write: []string{"to-deps", "top", "none"}}), []string{
			"CX-03 sandbox.filesystem.read[0]: is not below the root DIR/root, nor below a directory of contract_dependencies; it takes level elevated",
			"CX-03 sandbox.filesystem.read[1]: is not below the root DIR/root, nor below a directory of contract_dependencies; it takes level elevated",
			"CX-03 sandbox.filesystem.read[2]: leads to DIR/elsewhere, which is not below the root DIR/root, nor below a directory of contract_dependencies; it takes level elevated",
			"CX-03 sandbox.filesystem.write[0]: leads to DIR/deps, which is not below the root DIR/root; level extended writes below the root only",
			"CX-03 sandbox.filesystem.write[1]: is not a directory: give the directory that it is in",
			"CX-03 sandbox.filesystem.write[2]: does not exist",
		}},
		"elevated": {policy.Elevated, files(Filesystem{Read: []string{"/", "/proc/self", "/sys", dir, dir + "/state/runs"}, Write: []string{dir + "/state"}}), []string{
			"CX-03 sandbox.filesystem.read[0]: is the root of the file system, which no level opens",
			"CX-03 sandbox.filesystem.read[2]: lies in /sys, which no level opens",
			"CX-03 sandbox.filesystem.read[3]: is, holds or lies in DIR/state, which no level opens",
			"CX-03 sandbox.filesystem.read[4]: is, holds or lies in DIR/state, which no level opens",
			"CX-03 sandbox.filesystem.write[0]: is, holds or lies in DIR/state, which no level opens",
		}},
		"denied and needed": {policy.Extended, files(Filesystem{Read: []string{"secret"}, Write: []string{"out"}, Deny: []string{"to-src", "secret", "."}}), []string{
			`CX-03 sandbox.filesystem.deny[0]: hides inputs.working_directory "src"`,
			`CX-03 sandbox.filesystem.deny[1]: hides sandbox.filesystem.read[0] "secret"`,
			`CX-03 sandbox.filesystem.deny[2]: hides inputs.working_directory "src"`,
			`CX-03 sandbox.filesystem.deny[2]: hides sandbox.filesystem.read[0] "secret"`,
			`CX-03 sandbox.filesystem.deny[2]: hides sandbox.filesystem.write[0] "out"`,
		}},
		"outputs": {policy.Standard, func(c *Contract) {
			outputs("new", "/work/final/x", "/work/final", "../top", "deep", "to-elsewhere/x", "../to-deps/x", "deep/hidden/x", "/repo/src/new", "/repo/top")(c)
			c.Sandbox.Filesystem.Deny = []string{"src/deep/hidden"}
		}, []string{
			"IV-03 outputs.output_files[2]: is not below the root DIR/root",
			"CX-05 outputs.output_files[3]: is not below what the program may write: DIR/root/src, or /work/final",
			"CX-05 outputs.output_files[4]: is a directory",
			"IV-03 outputs.output_files[5]: leads to DIR/elsewhere/x, which is not below the root DIR/root",
			"IV-03 outputs.output_files[6]: leads to DIR/deps/x, which is not below the root DIR/root",
			"CX-05 outputs.output_files[7]: is hidden by sandbox.filesystem.deny[0]",
			"CX-05 outputs.output_files[9]: is not below what the program may write: DIR/root/src, or /work/final",
		}},
		"outputs of minimal": {policy.Minimal, outputs("new"), []string{
			"CX-05 outputs.output_files[0]: is not below what the program may write: nothing of the host, or /work/final"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, rules := resolveIn(dir, test.level, test.change)
			if name == "elevated" {
				rules = without(rules, "read[1]") // /proc/self leads to a number
			}
			require.Equal(t, test.rules, rules)
		})
	}
}

func without(lines []string, part string) (rest []string) {
	for _, line := range lines {
		if !strings.Contains(line, part) {
			rest = append(rest, line)
		}
	}
	return rest
}

func TestResolveInputSizes(t *testing.T) {
	dir := host(t)
	write := func(name string, n int) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "root/src", name), make([]byte, n), 0o644))
	}
	write("big", MaxInputFiles)
	write("one", 1)
	_, rules := resolveIn(dir, policy.Minimal, func(c *Contract) { c.Inputs.InputFiles = []string{"big"} })
	require.Empty(t, rules)
	_, rules = resolveIn(dir, policy.Minimal, func(c *Contract) { c.Inputs.InputFiles = []string{"big", "one"} })
	require.Equal(t, []string{"IV-05 inputs.input_files[1]: with it the input files have more than 10MiB in all"}, rules)
}

func TestResolveRoot(t *testing.T) {
	dir := host(t)
	for root, rule := range map[string]string{
		"/": "is the root of the file system: give a directory in it", dir + "/none": "does not exist",
		dir + "/elsewhere": "is not a directory", dir: "is, holds or lies in " + dir + "/state, which no level opens",
	} {
		_, violations := Resolve(Contract{}, root, Effective{FilesystemLevel: policy.Minimal}, nil, []string{dir + "/state"})
		require.Len(t, violations, 1)
		require.Equal(t, rule, violations[0].Rule)
	}
}

// A directory of the system is opened by its own name only.
func TestResolveDependencies(t *testing.T) {
	dir := host(t)
	c := Contract{Sandbox: Sandbox{Filesystem: Filesystem{Read: []string{"/usr/share", dir + "/deps"}}}}
	for name, test := range map[string]struct {
		dependencies []string
		refused      int
	}{
		"none": {nil, 2}, "everything": {[]string{"/"}, 1}, "both": {[]string{"/usr/share", dir}, 0}, "nothing there": {[]string{dir + "/none"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			_, violations := Resolve(c, filepath.Join(dir, "root"), Effective{FilesystemLevel: policy.Extended}, test.dependencies, nil)
			require.Len(t, violations, test.refused, violations)
		})
	}
}
