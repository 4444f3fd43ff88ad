package result

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/schematest"
)

func TestSchemaMatchesTypes(t *testing.T) {
	root := schematest.Load(t, SchemaJSON)
	require.NotNil(t, root.Properties["schema"].Const)
	require.Equal(t, SchemaV1, *root.Properties["schema"].Const)
	schematest.Match(t, root, reflect.TypeFor[Result]())
}

func TestSchemaEnums(t *testing.T) {
	root := schematest.Load(t, SchemaJSON)
	require.Equal(t, schematest.Names(Statuses()), schematest.Enum(t, root, "status"))
	require.Equal(t, schematest.Names(Faults()), schematest.Enum(t, root, "fault"))
	require.Equal(t, schematest.Names(errorReasons), schematest.Enum(t, root, "error_reason"))
	require.Equal(t, schematest.Names([]Deadline{DeadlineNone, DeadlineSoft, DeadlineHard}), schematest.Enum(t, root, "deadline"))
}

// Every other package may import this one, so it imports the standard library only.
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
