package spec

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/policy"
)

// optional is a struct without required fields.
func optional(typ reflect.Type) reflect.Type {
	var fields []reflect.StructField
	for _, field := range reflect.VisibleFields(typ) {
		if field.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		field.Tag, field.Index = reflect.StructTag(`json:"`+name+`,omitempty"`), nil
		fields = append(fields, field)
	}
	return reflect.StructOf(fields)
}

func TestSchemas(t *testing.T) {
	s := schematest.Load(t, SchemaJSON)
	schematest.Match(t, s, optional(reflect.TypeFor[document]()))
	require.Equal(t, schematest.Names(kinds), schematest.Enum(t, s.Defs["command"], "kind"))
	require.Equal(t, schematest.Names(reports), schematest.Enum(t, s.Defs["command"], "report"))
	require.Equal(t, schematest.Names(policy.NetworkLevels()), schematest.Enum(t, s.Defs["network"], "level"))

	l := schematest.Load(t, LockSchemaJSON)
	schematest.Match(t, l, reflect.TypeFor[Lock]())
	require.Equal(t, schematest.Names(kinds), schematest.Enum(t, l.Defs["command"], "kind"))
	require.Equal(t, schematest.Names(reports), schematest.Enum(t, l.Defs["command"], "report"))
}

// What Parse takes and Seal makes fits the schemas.
func TestSchemasFit(t *testing.T) {
	s, l := schematest.Load(t, SchemaJSON), schematest.Load(t, LockSchemaJSON)
	for _, text := range []string{
		`{"gate_commands":["pytest -q"]}`,
		`{"schema":"evalbox/wish/v1","name":"a","gate_commands":["pytest -q",{"cmd":"ruff check .","kind":"check","expect_exit":1,"timeout":"90s","env":{"A":"1"}},
		  {"cmd":"make test","report_path":"out/junit.xml"}],"io_boundary":"repo","network":{"level":"api","allow":["example.com"],"deny":[]},
		  "image":"base","python":"3.11","env":{"B":"2"},"limits":{"timeout":"10m","memory":"1g","cpus":1.5,"pids":100,"disk":"1g","log":"10m"},
		  "artifact_paths":["dist/**/*.whl"],"protected_paths":["secrets"],"read_only_paths":["core"],"exclude":[".venv"],
		  "toolchain":[{"source":"/opt/go","target":"/host/go"}],"claim_grade":false,"strict":true,
		  "normalize":[{"name":"x","pattern":"build-[0-9]+","replace":"build-N"}],"allow_suspects":["0x1"]}`,
	} {
		schematest.Valid(t, s, []byte(text))
		w, err := Parse([]byte(text), "wish.json")
		require.NoError(t, err)
		var mounts []evidence.ToolMount
		for _, tool := range w.Toolchain {
			mounts = append(mounts, evidence.ToolMount{Source: tool.Source, Target: tool.Target, Hash: testHash})
		}
		lock, err := Seal(w, evidence.Toolchain{Image: "base", ImageID: "sha256:" + testHash, Locked: true, Mounts: mounts})
		require.NoError(t, err)
		sealed, err := lock.JSON()
		require.NoError(t, err)
		schematest.Valid(t, l, sealed)
	}
}

// What the form alone tells to be wrong, the schema refuses as Parse does.
func TestSchemaRefuses(t *testing.T) {
	s := schematest.Load(t, SchemaJSON)
	for _, text := range []string{
		`{"gate_commands":[""]}`, `{"gate_commands":[{}]}`, `{"gate_commands":"pytest"}`, `{"gate_command":["x"]}`, `{"name":"../x"}`,
		`{"offline":"yes"}`, `{"network":{"level":"all"}}`, `{"network":{}}`, `{"limits":{"cpus":0}}`, `{"limits":{"pids":0}}`,
		`{"gate_commands":[{"cmd":"x","kind":"proof"}]}`, `{"gate_commands":[{"cmd":"x","expect_exit":256}]}`,
		`{"toolchain":[{"source":"/opt/go","target":"/usr"}]}`, `{"python":"latest"}`, `{"normalize":[{"name":"x","pattern":""}]}`,
	} {
		require.True(t, json.Valid([]byte(text)), text)
		schematest.Invalid(t, s, []byte(text))
		_, err := Parse([]byte(text), "wish.json")
		require.Error(t, err, text)
	}
}
