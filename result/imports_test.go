package result

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Everything else may import this package, so it imports nothing of ours and
// nothing of others.
func TestImportsOnlyStandardLibrary(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			first, _, _ := strings.Cut(strings.Trim(spec.Path.Value, `"`), "/")
			require.NotContains(t, first, ".", "%s imports %s", file, spec.Path.Value)
			require.NotEqual(t, "syscall", first, file)
		}
	}
}
