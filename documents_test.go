package evalbox_test

import (
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	wish "github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// written are the documents that evalbox writes for readers.
var written = map[string]reflect.Type{
	"approval/v1":          reflect.TypeFor[contract.Approval](),
	"artifacts/v1":         reflect.TypeFor[invoke.Profile](),
	"contract/v1":          reflect.TypeFor[contract.Contract](),
	"env-snapshot/v1":      reflect.TypeFor[evidence.EnvSnapshot](),
	"evaluation/v1":        reflect.TypeFor[evaluate.Result](),
	"evaluation-job/v1":    reflect.TypeFor[evaluate.Document](),
	"event/v1":             reflect.TypeFor[trial.Event](),
	"gate-document/v1":     reflect.TypeFor[gate.Document](),
	"gate-outputs/v1":      reflect.TypeFor[execute.Outputs](),
	"gate-verification/v1": reflect.TypeFor[gate.VerifyReport](),
	"invocation/v1":        reflect.TypeFor[invoke.Result](),
	"job/v1":               reflect.TypeFor[trial.Job](),
	"journal/v1":           reflect.TypeFor[record.Journal](),
	"metrics/v1":           reflect.TypeFor[metrics.Point](),
	"normalization/v1":     reflect.TypeFor[evidence.Normalization](),
	"observations/v1":      reflect.TypeFor[evidence.Observations](),
	"outcome/v1":           reflect.TypeFor[contract.Outcome](),
	"repetition/v1":        reflect.TypeFor[evaluate.Repetition](),
	"replay/v1":            reflect.TypeFor[gate.ReplayReport](),
	"request/v1":           reflect.TypeFor[sandbox.Request](),
	"result/v1":            reflect.TypeFor[result.Result](),
	"run-manifest/v1":      reflect.TypeFor[evidence.RunManifest](),
	"spec/v1":              reflect.TypeFor[spec.Spec](),
	"sweep-report/v1":      reflect.TypeFor[sweep.Report](),
	"tests/v1":             reflect.TypeFor[evidence.Tests](),
	"trial/v1":             reflect.TypeFor[trial.Result](),
	"verdict/v1":           reflect.TypeFor[evidence.Verdict](),
	"verification/v1":      reflect.TypeFor[invoke.Report](),
	"wish-lock/v1":         reflect.TypeFor[wish.Lock](),
	"workspace/v1":         reflect.TypeFor[evidence.Workspace](),
}

// words are values of types that have few.
var words = []any{
	result.StatusExited, result.FaultProgram, evaluate.TaskType("tabular"), evaluate.DataModality("tabular"), evaluate.Minimize,
	netip.MustParseAddr("192.0.2.1"), seed("7"),
}

func seed(text string) (s invoke.Seed) {
	if err := s.UnmarshalJSON([]byte(text)); err != nil {
		panic(err)
	}
	return s
}

// stay are the fields of documents that stay in the process which made them, with the reasons.
var stay = map[string]map[string]string{
	"evaluation/v1":   {"Result.refused": "an error of Go; error_summary is its text"},
	"event/v1":        {"Event.Result": "the log has it as a document of its own"},
	"gate-outputs/v1": {"Outputs.lost": "the gate is refused for it before the document is written"},
	"invocation/v1":   {"Result.cause": "an error of Go; error is its text"},
	"repetition/v1":   {"Result.refused": "an error of Go; error_summary is its text"},
	"spec/v1":         {"Job.secrets": "no record may have them", "WatchedPath.Inner": "the observer alone makes such paths"},
	"sweep-report/v1": {"End.err": "an error of Go; failure is its text"},
}

// elsewhere are the other documents, with the reasons.
var elsewhere = map[string]string{
	"images.lock/v1": "it is YAML; TestEncode of images/lock reads it again",
	"invoke/v1":      "its type is private; TestDocumentRoundTrip of harness/invoke",
	"state/v1":       "it has nothing but its schema",
	"sweep/v1":       "nobody reads it again: its bytes are compared",
	"sweep-run/v1":   "its type is private; TestRunFileRoundTrip of harness/invoke/sweep",
	"wish/v1":        "people write it",
}

// TestDocumentsRoundTrip: what a document says about its subject, it says also to a reader in
// another process. docs/schemas.md has all forms, and those of files, or with a schema, are tested.
func TestDocumentsRoundTrip(t *testing.T) {
	for name, typ := range written {
		t.Run(name, func(t *testing.T) { schematest.RoundTrip(t, typ, stay[name], words...) })
	}
	text, err := os.ReadFile("docs/schemas.md")
	require.NoError(t, err)
	_, files, _ := strings.Cut(string(text), "## Files of runs")
	files, _, _ = strings.Cut(files, "\n## ")
	linked := regexp.MustCompile("(?m)^\\| \\[`evalbox/([^`]*)`").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, linked)
	for _, form := range append(linked, regexp.MustCompile("(?m)^\\| \\[?`evalbox/([^`]*)`").FindAllStringSubmatch(files, -1)...) {
		_, tested := written[form[1]]
		assert.True(t, tested != (elsewhere[form[1]] != ""), "%s: it is in one of written and elsewhere", form[1])
	}
}
