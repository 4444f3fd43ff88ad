package adapter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/treetest"
)

// adapterText is a small adapter for the tool T. more are further members.
func adapterText(id, more string) string {
	return fmt.Sprintf("adapter_id: %s\nname: %s\nversion: \"1.0.0\"\ntool_id: T\ntype: cli\ninterface: {cli: {executable: cat, arg_mapping: {a: \"{a}\"}}}\n%s\n", id, strings.ToLower(id), more)
}

func opened(t *testing.T, documents map[string]string) *Registry {
	t.Helper()
	r, err := Open(treetest.Dir(t, documents), nil, nil)
	require.NoError(t, err)
	return r
}

func TestResolve(t *testing.T) {
	r := opened(t, map[string]string{
		"1.yaml": adapterText("A", "status: deprecated"), "2.yml": adapterText("B", "status: experimental"), "3.yaml": adapterText("C", ""), "4.yaml": adapterText("D", ""),
		"5.yaml": strings.Replace(adapterText("E", "status: deprecated"), "tool_id: T", "tool_id: U", 1), "notes.txt": "not an adapter",
	})
	for _, test := range []struct{ id, tool, want string }{
		{"", "T", "C"}, {"A", "T", "A"}, {"B", "", "B"}, {"D", "T", "D"}, {"", "U", ""}, {"", "V", ""}, {"E", "T", "E"},
	} {
		a, err := r.Resolve(test.id, test.tool)
		require.NoError(t, err)
		if test.want == "" {
			require.Nil(t, a)
		} else {
			require.Equal(t, test.want, a.ID)
		}
	}
	_, err := r.Resolve("Z", "T")
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, []string{"A", "B", "C", "D", "E"}, unknown.Known)
	var ids []string
	for _, d := range r.List("T") {
		ids = append(ids, d.ID)
		require.Empty(t, d.Version, "L0")
	}
	require.Equal(t, []string{"A", "B", "C", "D"}, ids)
	require.Len(t, r.List(""), 5)
	require.Equal(t, []Disclosure{}, r.List("V"))
}

// A shipped adapter is left out if the directory has one with its ID.
func TestOpenShipped(t *testing.T) {
	shipped := fstest.MapFS{"a.yaml": {Data: []byte(adapterText("A", ""))}, "b.yaml": {Data: []byte(adapterText("B", ""))}}
	dir := treetest.Dir(t, map[string]string{"z.yaml": adapterText("A", "metadata: {author: me}")})
	r, err := Open(dir, shipped, nil)
	require.NoError(t, err)
	require.Len(t, r.List(""), 2)
	a, err := r.Resolve("A", "")
	require.NoError(t, err)
	require.Equal(t, "me", a.Metadata.Author)
	require.Equal(t, filepath.Join(dir, "z.yaml"), r.Source("A"))
	require.Empty(t, r.Source("B"), "is shipped")
	require.Equal(t, filepath.Join(dir, "golden/A"), r.GoldenOf("A", "/state").Dir)
	require.Equal(t, "/state/adapters/golden/B", r.GoldenOf("B", "/state").Dir)

	// A directory may be given relative to the working directory.
	t.Chdir(filepath.Dir(dir))
	r, err = Open(filepath.Base(dir), nil, nil)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "z.yaml"), r.Source("A"))
}

// The problems of all documents are reported at once.
func TestOpenProblems(t *testing.T) {
	dir := treetest.Dir(t, map[string]string{
		"a.yaml": adapterText("A", ""), "b.yaml": adapterText("A", ""), "c.yaml": adapterText("C", "unknown: 1"), "d.json": "{", "e.yaml": adapterText("E", "status: off"),
	})
	_, err := Open(dir, fstest.MapFS{"x.yaml": {Data: []byte(adapterText("X", "type: x"))}}, nil)
	for _, want := range []string{
		`b.yaml: adapter_id "A" is that of ` + filepath.Join(dir, "a.yaml") + " as well", `c.yaml:7: unknown key "unknown"`, "d.json:", "e.yaml:7: metadata.status", "adapters/x.yaml:",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = Open(filepath.Join(dir, "missing"), nil, nil)
	require.ErrorContains(t, err, "missing")
}

func TestFallbacks(t *testing.T) {
	fallback := func(id string) string { return "errors: {fallback: {adapter_id: " + id + "}}" }
	for name, test := range map[string]struct {
		documents map[string]string
		want      string
	}{
		"a chain":      {map[string]string{"a.yaml": adapterText("A", fallback("B")), "b.yaml": adapterText("B", fallback("C")), "c.yaml": adapterText("C", "")}, ""},
		"itself":       {map[string]string{"a.yaml": adapterText("A", fallback("A"))}, `errors.fallback.adapter_id "A": closes a circle: A -> A`},
		"a circle":     {map[string]string{"a.yaml": adapterText("A", fallback("B")), "b.yaml": adapterText("B", fallback("A"))}, `"A": closes a circle: A -> B -> A`},
		"one later":    {map[string]string{"a.yaml": adapterText("A", fallback("B")), "b.yaml": adapterText("B", fallback("B"))}, `"B": closes a circle: A -> B -> B`},
		"none":         {map[string]string{"a.yaml": adapterText("A", fallback("B"))}, `errors.fallback.adapter_id "B": is not an adapter`},
		"another tool": {map[string]string{"a.yaml": adapterText("A", fallback("B")), "b.yaml": strings.Replace(adapterText("B", ""), "tool_id: T", "tool_id: U", 1)}, "is for tool U, and this one is for T"},
	} {
		r := opened(t, test.documents)
		_, err := r.Resolve("A", "T")
		if test.want == "" {
			require.NoError(t, err, name)
			require.NoError(t, r.CheckAll(), name)
			continue
		}
		require.ErrorContains(t, err, test.want, name)
		require.ErrorContains(t, r.CheckAll(), test.want, name)
	}
}

// A document that has become another adapter is not used for the one that it was.
func TestDocumentIsAnother(t *testing.T) {
	r := opened(t, map[string]string{"a.yaml": adapterText("A", "")})
	require.NoError(t, os.WriteFile(r.Source("A"), []byte(adapterText("B", "")), 0o600))
	_, err := r.Resolve("A", "T")
	require.ErrorContains(t, err, "was changed meanwhile")
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		version, of, tool string
		want              bool
	}{
		{"1.0.0", "", "1", true},
		{"1.0.0", "", "1.0", true},
		{"1.0.0", "", "1.0.0", true},
		{"1.0.0", "", "2", false},
		{"1.0.0", "", "1.1", false},
		{"1.0.0", "13", "13", true},
		{"1.0.0", "14.1.0", "14", true},
		{"1.0.0", "14", "14.1.0", true},
		{"1.0.0", "14.1.1", "14.1.0", false},
		{"1.0.0", "v14", "14", true},
		{"14.0.0", "", "140", false},
	} {
		a := &Adapter{Version: test.version, ToolVersion: test.of}
		require.Equal(t, test.want, a.matches(registry.Tool{Version: test.tool}), test)
	}
}

// A registry is used by many at once.
func TestRegistryConcurrently(t *testing.T) {
	r := opened(t, map[string]string{"a.yaml": adapterText("A", "errors: {fallback: {adapter_id: B}}"), "b.yaml": adapterText("B", "")})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			want := []string{"A", "B"}[i%2]
			a, err := r.Resolve(want, "T")
			if assert.NoError(t, err) {
				assert.Equal(t, want, a.ID)
			}
		})
	}
	all.Wait()
}
