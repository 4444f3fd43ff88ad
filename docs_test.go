package evalbox_test

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/uid"
)

// TestResultFieldsAreDocumented: every field of the wire form has its row, with
// its full path, and no row is of a field that is gone.
func TestResultFieldsAreDocumented(t *testing.T) {
	documented := documentedNames(t, "docs/result.md", "| field | type | meaning |")
	assert.ElementsMatch(t, wireFields(reflect.TypeFor[result.Result](), ""), documented)
}

// TestEvaluationFieldsAreDocumented is the same for evaluations.
func TestEvaluationFieldsAreDocumented(t *testing.T) {
	documented := documentedNames(t, "docs/evaluate.md", "| field | type | meaning |")
	assert.ElementsMatch(t, wireFields(reflect.TypeFor[evaluate.Result](), ""), documented)
}

// TestTaskKeysAreDocumented: every key of a task file has its row.
func TestTaskKeysAreDocumented(t *testing.T) {
	documented := documentedNames(t, "docs/evaluate.md", "| key | meaning |")
	assert.ElementsMatch(t, wireFields(reflect.TypeFor[evaluate.TaskDescription](), ""), documented)
}

// TestEnumsAreDocumented: a value that a reader may meet has its row.
func TestEnumsAreDocumented(t *testing.T) {
	var statuses, faults []string
	for _, s := range result.Statuses() {
		statuses = append(statuses, s.String())
	}
	for _, f := range result.Faults() {
		faults = append(faults, f.String())
	}
	assert.ElementsMatch(t, statuses, documentedNames(t, "docs/result.md", "| status | meaning | usual fault |"))
	assert.ElementsMatch(t, faults, documentedNames(t, "docs/result.md", "| fault | who should look |"))
}

// TestSettingsAreDocumented: every key of the shipped settings has its row, and
// the default that the row names is the shipped one.
func TestSettingsAreDocumented(t *testing.T) {
	var shipped map[string]any
	require.NoError(t, yaml.Unmarshal(configs.Settings(), &shipped))
	text, err := os.ReadFile("docs/settings.md")
	require.NoError(t, err)

	documented := map[string]string{}
	for _, cells := range markdownTable(string(text), "| key | default | flag | meaning |") {
		require.Len(t, cells, 4)
		documented[strings.Trim(cells[0], "`")] = strings.Trim(cells[1], "`")
	}
	want := map[string]string{}
	for name, value := range shipped {
		group, ok := value.(map[string]any)
		switch {
		case !ok:
			want[name] = strings.TrimSpace(yamlText(t, value))
		case name == "max": // the ceilings, one for each limit
			for limit, ceiling := range group {
				assert.Equal(t, "none", ceiling, "%s.%s", name, limit)
				assert.Contains(t, documented, limit)
			}
			want[name+".*"] = "none"
		case name == "kubernetes": // a table of its own
			below := map[string]string{}
			for _, cells := range markdownTable(string(text), "| key below `kubernetes` | default | meaning |") {
				below[strings.Trim(cells[0], "`")] = strings.Trim(cells[1], "`")
			}
			shipped := map[string]string{}
			for key, value := range group {
				shipped[key] = strings.TrimSpace(yamlText(t, value))
			}
			assert.Equal(t, shipped, below)
			want[name+".*"] = ""
		default:
			for key, value := range group {
				want[name+"."+key] = strings.TrimSpace(yamlText(t, value))
			}
		}
	}
	delete(want, "schema")
	assert.Equal(t, want, documented)
}

// yamlText is a value as a settings file has it; an empty text is empty.
func yamlText(t *testing.T, value any) string {
	t.Helper()
	if value == "" {
		return ""
	}
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// TestIndexHasEveryPage: a page that is not in the index is found by nobody, and is not a topic of `sandbox help`.
func TestIndexHasEveryPage(t *testing.T) {
	index, err := os.ReadFile("docs/README.md")
	require.NoError(t, err)
	for _, page := range documents(t) {
		if rel, ok := strings.CutPrefix(page, "docs/"); ok && rel != "README.md" {
			assert.Contains(t, string(index), "]("+rel+") |")
		}
	}
}

// documents are the pages of the repository, but for those of examples and clients.
func documents(t *testing.T) []string {
	t.Helper()
	pages := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "docs/guides/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	return pages
}

// TestDocumentedFilesExist follows every relative link of the documents.
func TestDocumentedFilesExist(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, page := range documents(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			target := filepath.Join(filepath.Dir(page), found[1])
			_, err := os.Stat(target)
			assert.NoError(t, err, "%s links to %s", page, found[1])
		}
	}
}

// TestDocumentedPathsExist: a path of the repository in a document is that of a file. A
// document that names moved files sends its readers to nowhere.
func TestDocumentedPathsExist(t *testing.T) {
	path := regexp.MustCompile("`((?:cmd|configs|examples|hack|harness|images|internal|policy|result|sandbox)/[\\w*/-]+(?:\\.[a-z]+)*)(?:\\.[A-Z]\\w*)*`")
	for _, page := range documents(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, found := range path.FindAllStringSubmatch(string(text), -1) {
			files, err := filepath.Glob(found[1])
			require.NoError(t, err)
			assert.NotEmpty(t, files, "%s names %s", page, found[1])
		}
	}
}

// TestWalkIsTrue: each function of the walk through the files is in its file.
func TestWalkIsTrue(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	const header = "| file | function | what it does |\n"
	tables := strings.Split(string(text), header)[1:]
	require.NotEmpty(t, tables)
	for _, table := range tables {
		for _, cells := range markdownTable(header+table, strings.TrimSuffix(header, "\n")) {
			file, function := strings.Trim(cells[0], "`"), strings.Trim(cells[1], "`")
			source, err := os.ReadFile(file)
			if assert.NoError(t, err) {
				assert.Regexp(t, `(?m)^(func|static).*\b`+function+`\(`, string(source), file)
			}
		}
	}
}

// documentedNames are the first cells of a table.
func documentedNames(t *testing.T, page, header string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var names []string
	for _, part := range strings.SplitAfter(string(text), header+"\n")[1:] {
		for _, cells := range markdownTable(header+"\n"+part, header) {
			for name := range strings.SplitSeq(cells[0], ",") {
				names = append(names, strings.Trim(strings.TrimSpace(name), "`"))
			}
		}
	}
	return names
}

// wireFields are the JSON names of a struct and of those in it, with dots; the
// elements of a list are written as "name[]".
func wireFields(typ reflect.Type, prefix string) []string {
	var names []string
	for field := range typ.Fields() {
		if !field.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		if field.Anonymous && name == "" {
			names = append(names, wireFields(inner, prefix)...)
			continue
		}
		name = prefix + name
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
			inner, name = inner.Elem(), name+"[]"
		}
		names = append(names, name)
		if inner.Kind() == reflect.Struct {
			names = append(names, wireFields(inner, name+".")...)
		}
	}
	return names
}

// TestExamplesCompile takes the programs out of the documents as their readers do.
func TestExamplesCompile(t *testing.T) {
	for _, page := range []string{"README.md", "docs/evaluate.md"} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			_, rest, ok := strings.Cut(string(text), "\n```go\n")
			require.True(t, ok, "%s has no Go program", page)
			program, _, ok := strings.Cut(rest, "```\n")
			require.True(t, ok)
			file := filepath.Join(t.TempDir(), "main.go")
			require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
			// Named as a file, it is part of this module.
			vet := exec.CommandContext(t.Context(), "go", "vet", "-trimpath", file)
			vet.Env = append(os.Environ(), "CGO_ENABLED=0") // as the command is compiled
			out, err := vet.CombinedOutput()
			require.NoError(t, err, "%s", out)
			formatted, err := format.Source([]byte(program))
			require.NoError(t, err)
			assert.Equal(t, string(formatted), program)
		})
	}
}

// TestReadmeNamesTheDefaults keeps the table of the README true.
func TestReadmeNamesTheDefaults(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	rows := map[string]string{}
	for _, cells := range markdownTable(string(text), "| what | by default | to change it |") {
		rows[cells[0]] = cells[1]
	}
	limits := policy.Default()
	for row, want := range map[string]string{
		"memory":     spaced(limits.Memory),
		"processors": strconv.FormatFloat(limits.CPUs, 'g', -1, 64),
		"time":       strconv.Itoa(int(limits.Timeout.Hours())) + " h",
		"`./final`":  spaced(limits.Disk),
		"output":     spaced(limits.StreamFile),
		"user":       uid.Default.String(),
	} {
		assert.Contains(t, rows[row], want, row)
	}
	assert.Contains(t, rows["output"], spaced(limits.CaptureStdout))
	assert.Contains(t, rows["output"], spaced(limits.CaptureStderr))
}

// spaced writes a size as a text does: 2 GiB.
func spaced(size policy.Size) string {
	text := size.String()
	at := strings.IndexFunc(text, unicode.IsLetter)
	return text[:at] + " " + text[at:]
}

// libraryPackages are the packages that other programs import.
var libraryPackages = []string{
	".", "policy", "result", "telemetry",
	"images", "images/archive", "images/build", "images/lock", "images/packages", "images/prune", "images/pull", "images/push", "images/store",
	"sandbox", "sandbox/doctor", "sandbox/egress", "sandbox/engine", "sandbox/engine/docker", "sandbox/engine/enginetest", "sandbox/engine/kubernetes",
	"sandbox/gpu", "sandbox/metrics", "sandbox/record", "sandbox/spec", "sandbox/stop", "sandbox/tree",
	"harness/contract", "harness/contract/adapter", "harness/contract/registry", "harness/evaluate", "harness/evaluate/mlestar",
	"harness/evaluate/submission", "harness/gate", "harness/invoke", "harness/invoke/sweep", "harness/trial",
}

// TestPackagesHaveExamples: go doc shows how each package of the library is used.
func TestPackagesHaveExamples(t *testing.T) {
	example := regexp.MustCompile(`(?m)^func Example`)
	for _, dir := range libraryPackages {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			return example.Match(text)
		}), "%s has no example", dir)
	}
}
