package evalbox_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requiredIDs are the requirements of each part, by the directory whose names its table
// has; the heading of the table is above it.
var requiredIDs = []struct {
	heading, folder string
	ids             []string
}{
	{"# Requirements of the script harness", "harness/evaluate", []string{
		"EX-SCOPE", "EX-001..EX-032", "EX-035..EX-039", "EX-041..EX-046",
		"DM-001..DM-003", "DM-006..DM-010", "DM-021", "DM-026..DM-029", "AI-07", "AI-11",
	}},
	{"# Requirements of the code execution contract", "harness/contract", []string{
		"CX-01..CX-06", "IV-01..IV-05", "DT-01", "CK-01..CK-03", "CI-01..CI-03", "CI-07", "TG", "CC",
	}},
	{"# Requirements of adapters", "harness/contract/adapter", []string{
		"AR-01..AR-09", "PD-01", "PD-02", "DT-02", "CI-05", "CI-08",
	}},
	{"# Requirements of the artifact runner", "harness/invoke", []string{"M3-01..M3-13", "MI-01..MI-06"}},
	{"# Requirements of sweeps", "harness/invoke/sweep", []string{"MI-08..MI-12"}},
	{"# Requirements of the gate harness", "harness/gate", []string{
		"RT-01..RT-17", "RO-04", "RO-07..RO-09", "RO-12",
	}},
}

// expandIDs writes out "EX-004..EX-006" as EX-004, EX-005, EX-006.
func expandIDs(t *testing.T, ranges []string) []string {
	t.Helper()
	var all []string
	for _, r := range ranges {
		first, last, isRange := strings.Cut(r, "..")
		if !isRange {
			all = append(all, r)
			continue
		}
		prefix, from, ok := strings.Cut(first, "-")
		require.True(t, ok)
		var low, high int
		_, err := fmt.Sscanf(from+" "+strings.TrimPrefix(last, prefix+"-"), "%d %d", &low, &high)
		require.NoError(t, err)
		require.Less(t, low, high)
		for n := low; n <= high; n++ {
			all = append(all, fmt.Sprintf("%s-%0*d", prefix, len(from), n))
		}
	}
	return all
}

// TestRequirementsAreMapped: every requirement has one row, and every name in it
// exists: what meets it and what shows it.
func TestRequirementsAreMapped(t *testing.T) {
	text, err := os.ReadFile("docs/requirements.md")
	require.NoError(t, err)
	names := map[string]packageNames{}
	code := regexp.MustCompile("`([^`]+)`")
	for _, part := range requiredIDs {
		_, section, found := strings.Cut(string(text), part.heading+"\n")
		require.True(t, found, part.heading)
		var mapped []string
		for _, cells := range markdownTable(section, "| ID | what is required | where | shown by |") {
			require.Len(t, cells, 4, cells)
			id := cells[0]
			mapped = append(mapped, id)
			for column, tests := range map[string]bool{cells[2]: false, cells[3]: true} {
				found := code.FindAllStringSubmatch(column, -1)
				assert.NotEmpty(t, found, "%s names nothing: %q", id, column)
				for _, name := range found {
					folder, symbol := part.folder, name[1]
					// "result.ParseScore" is of a package, "Evaluator.Repeat" of a type.
					if before, after, ok := strings.Cut(symbol, "."); ok && strings.ToLower(before) == before {
						folder, symbol = before, after
					}
					if _, read := names[folder]; !read {
						names[folder] = namesOf(t, folder)
					}
					if tests {
						assert.Contains(t, names[folder].tests, symbol, "%s: there is no such test in %s", id, folder)
					} else {
						assert.Contains(t, names[folder].exported, symbol, "%s: there is no such name in %s", id, folder)
					}
				}
			}
		}
		assert.ElementsMatch(t, expandIDs(t, part.ids), mapped)
	}
}

// packageNames are the names that a package declares: exported ones, methods as
// "Type.Method", and the functions of its tests.
type packageNames struct{ exported, tests map[string]bool }

func namesOf(t *testing.T, folder string) packageNames {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, folder)
	names := packageNames{map[string]bool{}, map[string]bool{}}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		into := names.exported
		if strings.HasSuffix(file, "_test.go") {
			into = names.tests
		}
		for _, declaration := range tree.Decls {
			for _, name := range declaredNames(declaration) {
				if ast.IsExported(name[strings.LastIndexByte(name, '.')+1:]) {
					into[name] = true
				}
			}
		}
	}
	return names
}

func declaredNames(declaration ast.Decl) []string {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		receiver := d.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		if name, ok := receiver.(*ast.Ident); ok {
			return []string{name.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		var names []string
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			}
		}
		return names
	}
	return nil
}
