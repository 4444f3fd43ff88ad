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

// importTable says which directories of the project each directory may import, itself and the
// directories below it apart. It is the table of docs/architecture.md; directories that
// do not exist yet have their place already.
var importTable = []struct {
	folder string
	may    []string
}{
	{"result", nil},
	{"policy", []string{"internal/strict"}},
	{"configs", nil},
	{"docs", nil},
	{"images", []string{"internal/strict"}},
	{"images/packages", nil},
	{"images/store", []string{"images", "images/packages", "internal/owner"}},
	{"images/lock", []string{"images", "images/packages", "internal/fsx", "internal/strict"}},
	{"images/pull", []string{"images", "images/store"}},
	{"images/push", []string{"images", "images/pull", "internal/text"}},
	{"images/build", []string{"images", "images/store", "images/pull", "internal/owner"}},
	{"images/archive", []string{"images", "images/packages", "images/store", "images/lock"}},
	{"images/prune", []string{"images", "images/store", "images/lock"}},
	{"sandbox/stop", []string{"result", "internal/text"}},
	{"sandbox/spec", []string{"policy", "internal/strict", "internal/owner"}},
	{"sandbox/plan", []string{"policy", "sandbox/spec", "sandbox/stop", "internal/fsx"}},
	{"sandbox/hostpath", []string{"policy", "sandbox/spec", "sandbox/tree", "internal/fsx"}},
	{"sandbox/engine", []string{"policy", "images", "sandbox/spec", "sandbox/engine/wire"}},
	{"sandbox/engine/wire", nil},
	{"sandbox/engine/enginetest", []string{"images", "sandbox/spec", "sandbox/archive", "sandbox/ends", "sandbox/engine", "sandbox/engine/wire"}},
	{"sandbox/engine/preload", []string{"sandbox/spec", "sandbox/engine/wire"}},
	{"sandbox/engine/docker", []string{"policy", "images", "images/store", "sandbox/spec", "sandbox/engine", "sandbox/engine/wire", "sandbox/engine/preload", "sandbox/archive", "internal/owner", "internal/dockerhost"}},
	{"sandbox/engine/kubernetes", []string{"policy", "images", "sandbox/spec", "sandbox/engine", "sandbox/engine/wire", "sandbox/engine/preload", "sandbox/engine/kubernetes/porter", "sandbox/archive"}},
	{"sandbox/engine/kubernetes/porter", nil},
	{"sandbox/record", []string{"result", "policy", "sandbox/spec", "internal/brief", "internal/fsx", "internal/owner"}},
	{"sandbox/metrics", []string{"result", "internal/fsx"}},
	{"sandbox/outcome", []string{"result", "sandbox/engine"}},
	{"sandbox/collect", []string{"result", "internal/fsx"}},
	{"sandbox/stream", []string{"result", "sandbox/record", "internal/fsx"}},
	{"sandbox/tree", []string{"result", "policy", "sandbox/spec", "sandbox/record", "sandbox/collect", "internal/fsx"}},
	{"sandbox/archive", []string{"sandbox/spec", "sandbox/collect", "sandbox/tree", "internal/fsx"}},
	{"sandbox/disk", []string{"internal/fsx"}},
	{"sandbox/stage", []string{"result", "policy", "sandbox/spec", "sandbox/hostpath", "sandbox/engine", "sandbox/engine/wire", "sandbox/record", "sandbox/outcome", "sandbox/collect", "sandbox/tree", "sandbox/archive", "sandbox/disk", "internal/fsx", "internal/owner"}},
	{"sandbox/egress", []string{"result", "policy", "sandbox/spec", "sandbox/record", "internal/fsx"}},
	{"sandbox/handover", []string{"internal/fsx"}},
	{"sandbox/uid", []string{"internal/fsx"}},
	{"sandbox/gpu", []string{"sandbox/spec", "sandbox/metrics", "internal/fsx"}},
	{"sandbox/observe", []string{"result", "sandbox/spec", "sandbox/engine", "sandbox/record", "sandbox/outcome", "internal/fsx"}},
	{"sandbox", []string{"result", "policy", "images", "images/lock", "sandbox/spec", "sandbox/plan", "sandbox/hostpath", "sandbox/engine", "sandbox/engine/wire", "sandbox/record", "sandbox/outcome", "sandbox/collect", "sandbox/stream", "sandbox/metrics", "sandbox/stop", "sandbox/tree", "sandbox/stage", "sandbox/egress", "sandbox/gpu", "sandbox/handover", "sandbox/uid", "sandbox/observe", "internal/fsx", "internal/owner", "internal/atend", "internal/text"}},
	{"sandbox/doctor", []string{"result", "policy", "sandbox/spec", "sandbox/engine", "sandbox/engine/docker", "sandbox/engine/kubernetes", "sandbox", "sandbox/probe", "internal/fsx", "internal/text", "internal/dockerhost"}},
	{"sandbox/ends", nil},
	{"sandbox/probe", []string{"result", "policy", "sandbox/spec", "sandbox/ends", "sandbox", "internal/fsx", "internal/treehash"}},
	{"harness/trial", []string{"policy", "internal/fsx", "internal/text", "internal/atend"}},
	{"harness/evaluate", append(slices.Clone(belowHarness), "sandbox/metrics", "sandbox/stop", "configs")},
	{"harness/contract", append(slices.Clone(belowHarness), "harness/contract/registry")},
	{"harness/contract/registry", []string{"policy", "internal/strict", "internal/text"}},
	{"harness/contract/adapter", []string{"result", "policy", "harness/contract", "harness/contract/registry", "harness/contract/adapter/transform", "harness/contract/adapter/driver", "harness/contract/adapter/web", "internal/fsx", "internal/strict", "internal/text"}},
	{"harness/contract/adapter/transform", []string{"internal/strict", "internal/text"}},
	{"harness/contract/adapter/driver", []string{"internal/strict", "internal/text"}},
	{"harness/contract/adapter/web", []string{"policy", "sandbox/egress", "internal/fsx", "internal/strict", "internal/text"}},
	{"harness/invoke", belowHarness},
	{"harness/gate", belowHarness},
	{"telemetry", []string{"result", "policy", "images/lock", "sandbox", "harness/trial", "internal/text"}},
	{"internal/brief", nil},
	{"internal/fsx", nil},
	{"internal/treehash", []string{"internal/fsx"}},
	{"internal/strict", []string{"internal/text"}},
	{"internal/text", nil},
	{"internal/atend", nil},
	{"internal/terminal", nil},
	{"internal/owner", nil},
	{"internal/dockerhost", []string{"sandbox/engine", "internal/text"}},
	{"internal/settings", []string{"policy", "configs", "images", "images/lock", "sandbox/spec", "sandbox/stop", "sandbox/engine", "sandbox/engine/docker", "sandbox/engine/kubernetes", "sandbox/record", "sandbox/uid", "sandbox", "internal/fsx", "internal/text", "internal/dockerhost"}},
	{"internal/render", []string{"result", "policy", "images/lock", "images/packages", "images/prune", "sandbox/spec", "sandbox/record", "sandbox", "sandbox/gpu", "harness/evaluate", "harness/contract", "harness/invoke", "harness/gate", "internal/text", "internal/terminal"}},
	{"internal/plot", []string{"internal/text", "internal/terminal"}},
	{"internal/browse", []string{"result", "policy", "sandbox/spec", "sandbox/record", "sandbox/metrics", "sandbox/gpu", "harness/contract", "harness/trial", "internal/fsx", "internal/plot", "internal/render", "internal/terminal", "internal/text"}},
	{"internal/report", []string{"result", "sandbox/record", "sandbox/metrics", "harness/evaluate", "harness/invoke", "harness/gate", "internal/plot", "internal/render", "internal/text", "internal/terminal"}},
	{"internal/schematest", nil},
	{"internal/treetest", nil},
	{"cmd/sandbox", []string{"everything"}},
	{"cmd/sandbox-porter", []string{"sandbox/engine/kubernetes/porter"}},
	{"hack/bench", []string{"everything"}},
	{"hack/browser", []string{"everything"}},
	{"hack/faults", []string{"everything"}},
	{"hack/guides", nil},
	{"hack/hostile", []string{"everything"}},
	{"hack/initimage", []string{"images/push", "sandbox/engine/wire"}},
	{"hack/reference", []string{"internal/settings", "cmd/sandbox"}},
	{".", []string{"result", "sandbox", "internal/settings"}},
}

var belowHarness = []string{"result", "policy", "images", "images/lock", "sandbox/spec", "sandbox/record", "sandbox/tree", "sandbox", "harness/trial", "internal/brief", "internal/fsx", "internal/treehash", "internal/strict", "internal/text"}

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
func folderOf(importPath string) string {
	if importPath == module {
		return "."
	}
	rel, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return ""
	}
	deepest := ""
	for _, row := range importTable {
		if (rel == row.folder || strings.HasPrefix(rel, row.folder+"/")) && len(row.folder) > len(deepest) {
			deepest = row.folder
		}
	}
	return deepest
}

func isOurs(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// allowed says whether the table lets a package of one directory import one of
// another.
func allowed(from, to string) bool {
	for _, row := range importTable {
		if row.folder == from {
			return from == to || slices.Contains(row.may, to) || slices.Contains(row.may, "everything")
		}
	}
	return false
}

func TestAllowed(t *testing.T) {
	assert.True(t, allowed("sandbox", "policy"))
	assert.True(t, allowed("sandbox", "sandbox"))
	assert.True(t, allowed("cmd/sandbox", "configs"))
	assert.False(t, allowed("policy", "sandbox"))
	assert.False(t, allowed("images", "result"))
	assert.False(t, allowed("sandbox", "."))
	assert.Equal(t, "sandbox/stage", folderOf(module+"/sandbox/stage/archive"))
	assert.Equal(t, "sandbox/engine/docker", folderOf(module+"/sandbox/engine/docker"))
	assert.Equal(t, ".", folderOf(module))
	assert.Empty(t, folderOf(module+"/elsewhere"))
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
	for _, goos := range []string{"linux", "darwin"} {
		t.Run(goos, func(t *testing.T) {
			packages := listPackages(t, goos)
			require.NotEmpty(t, packages)
			for _, p := range packages {
				from := folderOf(p.ImportPath)
				if !assert.NotEmpty(t, from, "%s is in no directory of the import table", p.ImportPath) {
					continue
				}
				for _, to := range p.Imports {
					if isOurs(to) && !allowed(from, folderOf(to)) {
						t.Errorf("%s imports %s, which the import table does not allow", p.ImportPath, to)
					}
				}
				// Tests may look at more, but never upwards.
				for _, to := range slices.Concat(p.TestImports, p.XTestImports) {
					if isOurs(to) && folderOf(to) == "cmd/sandbox" && from != "cmd/sandbox" {
						t.Errorf("the tests of %s import %s", p.ImportPath, to)
					}
				}
			}
		})
	}
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

// TestConfigsEmbedOnly keeps the shipped files free of behaviour.
func TestConfigsEmbedOnly(t *testing.T) {
	for _, p := range goList(t, "linux", "./configs", "./docs") {
		for _, to := range p.Imports {
			assert.NotContains(t, to, ".", "%s imports %s; it holds files", p.ImportPath, to)
		}
	}
}

// TestImportTableIsDocumented compares the table above with the one that people
// read.
func TestImportTableIsDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	documented := map[string][]string{}
	code := regexp.MustCompile("`([^`]+)`")
	for _, cells := range markdownTable(string(text), "| directory | meaning | may import (of evalbox) |") {
		require.Len(t, cells, 3)
		names := code.FindStringSubmatch(cells[0])
		require.NotNil(t, names, cells[0])
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
		documented[strings.TrimSuffix(names[1], "/")] = may
	}
	tested := map[string][]string{}
	for _, row := range importTable {
		tested[row.folder] = row.may
	}
	assert.Equal(t, tested, documented)
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

func listPackages(t *testing.T, goos string) []goPackage {
	t.Helper()
	return goList(t, goos, "./...")
}

// goList asks the go command. It runs where the test runs: in the root.
func goList(t *testing.T, goos string, args ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json"}, args...)...)
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
