package evalbox_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/evalbox/evalbox"

// An importTable says which directories of the project each directory may import, itself and the
// directories below it apart.
type importTable map[string][]string

// readImportTable reads the table of docs/architecture.md.
func readImportTable(t *testing.T) importTable {
	t.Helper()
	text, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	table := importTable{}
	code := regexp.MustCompile("`([^`]+)`")
	for _, cells := range markdownTable(string(text), "| directory | meaning | may import (of evalbox) |") {
		require.Len(t, cells, 3)
		folder := code.FindStringSubmatch(cells[0])
		require.NotNil(t, folder, cells[0])
		var may []string
		for _, name := range code.FindAllStringSubmatch(cells[2], -1) {
			may = append(may, name[1])
		}
		switch cells[2] {
		case "everything":
			may = []string{"everything"}
		case "nothing":
			require.Empty(t, may)
		default:
			require.NotEmpty(t, may, cells[2])
		}
		name := strings.TrimSuffix(folder[1], "/")
		require.NotContains(t, table, name)
		table[name] = may
	}
	return table
}

// foreign says which directories may import a package that is not ours, or those below it.
// Nobody may import those without a directory, tests included.
var foreign = map[string][]string{
	// An engine that is not Docker will have the same images and plans.
	"github.com/docker/docker": {
		"images/store", "images/pull", "images/push", "images/build", "images/archive", "images/prune", "images/imagestest",
		"sandbox/engine/docker", "sandbox/doctor", "internal/dockerhost", "cmd/sandbox", "hack/faults",
	},
	"k8s.io": {"sandbox/engine/kubernetes"},
	// A library has no command line, and reads no settings.
	"github.com/spf13":      {"internal/settings", "cmd/sandbox", "hack/reference"},
	"github.com/pkg/errors": nil, // errors
	"io/ioutil":             nil, // io and os
	"log":                   nil, // log/slog
	"math/rand":             nil, // math/rand/v2 or crypto/rand
}

// goPackage is what `go list` tells of a package.
type goPackage struct {
	ImportPath   string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// folderOf is the row of the table that a package of ours belongs to, the deepest one;
// empty for none.
func (table importTable) folderOf(importPath string) string {
	if importPath == module {
		return "."
	}
	rel, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return ""
	}
	deepest := ""
	for folder := range table {
		if (rel == folder || strings.HasPrefix(rel, folder+"/")) && len(folder) > len(deepest) {
			deepest = folder
		}
	}
	return deepest
}

func isOurs(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// allowed says whether the table lets a package of one directory import one of
// another.
func (table importTable) allowed(from, to string) bool {
	may, ok := table[from]
	return ok && (from == to || slices.Contains(may, to) || slices.Contains(may, "everything"))
}

func TestAllowed(t *testing.T) {
	table := readImportTable(t)
	assert.True(t, table.allowed("sandbox", "policy"))
	assert.True(t, table.allowed("sandbox", "sandbox"))
	assert.True(t, table.allowed("cmd/sandbox", "configs"))
	assert.False(t, table.allowed("policy", "sandbox"))
	assert.False(t, table.allowed("images", "result"))
	assert.False(t, table.allowed("sandbox", "."))
	assert.Equal(t, "sandbox/stage", table.folderOf(module+"/sandbox/stage/archive"))
	assert.Equal(t, "sandbox/engine/docker", table.folderOf(module+"/sandbox/engine/docker"))
	assert.Equal(t, ".", table.folderOf(module))
	assert.Empty(t, table.folderOf(module+"/elsewhere"))
}

// TestGateNodesSeeTheirInputs: the nodes of a gate speak through files alone, and none of
// those that look at evidence could run anything (RT-17).
func TestGateNodesSeeTheirInputs(t *testing.T) {
	never := map[string][]string{
		"spec":       {"execute", "normalize", "testreport", "judge", "attest"},
		"execute":    {"normalize", "testreport", "judge", "attest"},
		"normalize":  {"spec", "execute", "repo", "judge", "attest"},
		"testreport": {"spec", "execute", "repo", "judge", "attest"},
		"judge":      {"execute", "repo", "attest"},
		"evidence":   {"spec", "execute", "repo", "normalize", "testreport", "judge", "attest"},
	}
	for node, others := range never {
		packages := goList(t, "linux", "./harness/gate/"+node)
		require.Len(t, packages, 1)
		for _, other := range others {
			assert.NotContains(t, packages[0].Imports, module+"/harness/gate/"+other, node)
		}
		if node != "execute" {
			assert.NotContains(t, packages[0].Imports, module+"/sandbox", node)
		}
	}
	// Node 2 sees RunManifest.json and not the wish; the judge reads the sealed wish as
	// evidence. Neither decides what is run.
	assert.Subset(t, []string{"Match"}, namesUsed(t, "harness/gate/execute", module+"/harness/gate/spec"))
	assert.Subset(t, []string{"ErrChanged", "Lock", "MaxDocument", "ParseLock"}, namesUsed(t, "harness/gate/judge", module+"/harness/gate/spec"))
}

// namesUsed are the names of a package that the files of a directory use, those of tests apart.
func namesUsed(t *testing.T, dir, importPath string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, imported := range file.Imports {
			if strings.HasSuffix(name, "_test.go") || imported.Path.Value != strconv.Quote(importPath) {
				continue
			}
			local := path.Base(importPath)
			if imported.Name != nil {
				local = imported.Name.Name
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if used, ok := n.(*ast.SelectorExpr); ok {
					if of, ok := used.X.(*ast.Ident); ok && of.Name == local {
						names = append(names, used.Sel.Name)
					}
				}
				return true
			})
		}
	}
	return names
}

// TestImportTable looks at the imports for every system that the repository
// builds on: files of one system have imports of their own.
func TestImportTable(t *testing.T) {
	table := readImportTable(t)
	for _, goos := range []string{"linux", "darwin"} {
		t.Run(goos, func(t *testing.T) {
			packages := listPackages(t, goos)
			require.NotEmpty(t, packages)
			for _, p := range packages {
				from := table.folderOf(p.ImportPath)
				if !assert.NotEmpty(t, from, "%s is in no directory of the import table", p.ImportPath) {
					continue
				}
				for _, to := range p.Imports {
					if isOurs(to) && !table.allowed(from, table.folderOf(to)) {
						t.Errorf("%s imports %s, which the import table does not allow", p.ImportPath, to)
					}
					if rule, ok := foreignRule(to); ok && !slices.Contains(foreign[rule], from) {
						t.Errorf("%s imports %s, which is for %s", p.ImportPath, to, foreign[rule])
					}
				}
				// Tests may look at more, but never upwards.
				for _, to := range slices.Concat(p.TestImports, p.XTestImports) {
					if isOurs(to) && table.folderOf(to) == "cmd/sandbox" && from != "cmd/sandbox" {
						t.Errorf("the tests of %s import %s", p.ImportPath, to)
					}
					if rule, ok := foreignRule(to); ok && foreign[rule] == nil {
						t.Errorf("the tests of %s import %s", p.ImportPath, to)
					}
				}
			}
		})
	}
}

// foreignRule is the package with a rule that a package is, or is below. What is below a
// package of the standard library is another matter.
func foreignRule(importPath string) (rule string, ok bool) {
	for path := range foreign {
		if importPath == path || strings.Contains(path, ".") && strings.HasPrefix(importPath, path+"/") {
			return path, true
		}
	}
	return "", false
}

// TestResultImportsOnlyTheStandardLibrary is why another program can read
// results without taking over what we depend on.
func TestResultImportsOnlyTheStandardLibrary(t *testing.T) {
	standard := map[string]bool{}
	for _, p := range goList(t, "linux", "-deps", "./result") {
		standard[p.ImportPath] = p.Standard
	}
	for path, isStandard := range standard {
		assert.True(t, isStandard || path == module+"/result", "result depends on %s", path)
	}
	assert.Contains(t, standard, "encoding/json")
}

// TestEmbeddersCompileLittle: a Go program that calls Run is built without the engine for Kubernetes, which
// alone needs more than 200 packages.
func TestEmbeddersCompileLittle(t *testing.T) {
	const most = 400
	for _, goos := range []string{"linux", "darwin"} {
		packages := goList(t, goos, "-deps", ".")
		assert.LessOrEqual(t, len(packages), most, goos)
		for _, p := range packages {
			assert.False(t, strings.HasPrefix(p.ImportPath, "k8s.io/"), "%s of %s", p.ImportPath, goos)
		}
	}
}

// TestEvaluationsRunNothingThemselves: a script is run by the sandbox only, as a program
// of its own (EX-041). Nothing of the harness can start a process or load code.
func TestEvaluationsRunNothingThemselves(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		for _, p := range goList(t, goos, "./harness/evaluate/...", "./internal/fsx") {
			for _, means := range []string{"os/exec", "plugin", "unsafe", "C"} {
				assert.NotContains(t, p.Imports, means, "%s of %s", goos, p.ImportPath)
			}
		}
	}
}

// TestSequentialPackagesStartNoGoroutine: hack/ring does not look for data races in packages that cannot have one.
func TestSequentialPackagesStartNoGoroutine(t *testing.T) {
	ring, err := os.ReadFile("hack/ring")
	require.NoError(t, err)
	list := regexp.MustCompile(`(?m)^sequential=\((.*)\)$`).FindSubmatch(ring)
	require.NotNil(t, list)
	for _, dir := range strings.Fields(string(list[1])) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, dir)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				_, starts := n.(*ast.GoStmt)
				if selector, ok := n.(*ast.SelectorExpr); ok {
					starts = selector.Sel.Name == "Go"
				}
				assert.False(t, starts, "%s starts a goroutine: take its package out of the list in hack/ring", name)
				return true
			})
		}
	}
}

// TestConfigsEmbedOnly keeps the shipped files free of behaviour.
func TestConfigsEmbedOnly(t *testing.T) {
	for _, p := range goList(t, "linux", "./configs", "./docs") {
		for _, to := range p.Imports {
			assert.NotContains(t, to, ".", "%s imports %s; it holds files", p.ImportPath, to)
		}
	}
}

// markdownTable returns the cells of the rows of the table with this header.
func markdownTable(text, header string) [][]string {
	_, rest, ok := strings.Cut(text, header+"\n")
	if !ok {
		return nil
	}
	var rows [][]string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		if strings.HasPrefix(line, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// listPackages lists the packages of both modules.
func listPackages(t *testing.T, goos string) []goPackage {
	t.Helper()
	tools := goListIn(t, "hack", goos, "./...")
	require.NotEmpty(t, tools)
	return append(goList(t, goos, "./..."), tools...)
}

// goList asks the go command about the product. It runs where the test runs: in the root.
func goList(t *testing.T, goos string, args ...string) []goPackage {
	t.Helper()
	return goListIn(t, ".", goos, args...)
}

func goListIn(t *testing.T, dir, goos string, args ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOFLAGS=-mod=readonly", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}
