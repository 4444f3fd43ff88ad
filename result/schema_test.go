package result_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/result"
)

func TestSchemaMatchesTypes(t *testing.T) {
	root := schematest.Load(t, result.SchemaJSON)
	require.NotNil(t, root.Properties["schema"].Const)
	require.Equal(t, result.SchemaV1, *root.Properties["schema"].Const)
	schematest.Match(t, root, reflect.TypeFor[result.Result]())
}

func TestSchemaEnums(t *testing.T) {
	root := schematest.Load(t, result.SchemaJSON)
	require.Equal(t, schematest.Names(result.Statuses()), schematest.Enum(t, root, "status"))
	require.Equal(t, schematest.Names(result.Faults()), schematest.Enum(t, root, "fault"))
	require.Equal(t, schematest.Names(result.ErrorReasons()), schematest.Enum(t, root, "error_reason"))
}
