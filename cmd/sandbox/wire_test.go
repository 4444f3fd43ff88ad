package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// documents are what evalbox writes to disk and reads again. Those of testdata/wire have every field.
var documents = map[string]struct {
	as     reflect.Type
	schema []byte
}{
	"result.json":     {reflect.TypeFor[result.Result](), result.SchemaJSON},
	"journal.json":    {reflect.TypeFor[record.Journal](), nil},
	"job.json":        {reflect.TypeFor[trial.Job](), trial.JobSchemaJSON},
	"trial.json":      {reflect.TypeFor[trial.Result](), trial.ResultSchemaJSON},
	"event.json":      {reflect.TypeFor[trial.Event](), trial.EventSchemaJSON},
	"outcome.json":    {reflect.TypeFor[contract.Outcome](), contract.OutcomeSchemaJSON},
	"approval.json":   {reflect.TypeFor[contract.Approval](), nil},
	"evaluation.json": {reflect.TypeFor[evaluate.Result](), nil},
	"invocation.json": {reflect.TypeFor[invoke.Result](), nil},
	"metrics.json":    {reflect.TypeFor[metrics.Point](), metrics.SchemaJSON},

	"../../../../sandbox/plan/testdata/spec-full.json": {reflect.TypeFor[spec.Spec](), nil},
	"../earlier/gate/" + evidence.RunManifestFile:      {reflect.TypeFor[evidence.RunManifest](), nil},
	"../earlier/gate/" + evidence.VerdictFile:          {reflect.TypeFor[evidence.Verdict](), nil},
	"../earlier/gate/" + evidence.GatesFile:            {reflect.TypeFor[evidence.Gates](), nil},
	"../earlier/gate/" + evidence.PlanFile:             {reflect.TypeFor[evidence.Plan](), nil},
	"../earlier/gate/" + evidence.TestsFile:            {reflect.TypeFor[evidence.Tests](), nil},
	"../earlier/gate/" + evidence.EnvSnapshotFile:      {reflect.TypeFor[evidence.EnvSnapshot](), nil},
	"../earlier/gate/" + evidence.WorkspaceFile:        {reflect.TypeFor[evidence.Workspace](), nil},
	"../earlier/gate/" + evidence.ObservationsFile:     {reflect.TypeFor[evidence.Observations](), nil},
	"../earlier/gate/" + evidence.NormalizationFile:    {reflect.TypeFor[evidence.Normalization](), nil},
	"../earlier/gate/" + evidence.FindingsFile:         {reflect.TypeFor[evidence.Findings](), nil},
	"../earlier/gate/" + evidence.ArtifactsFile:        {reflect.TypeFor[evidence.Artifacts](), nil},
	"../earlier/gate/" + evidence.ManifestFile:         {reflect.TypeFor[evidence.Manifest](), nil},
}

// TestDocumentsComeBack: what is read of a document, and written again, is the document. A change of a
// field in a form that keeps its number shows here.
func TestDocumentsComeBack(t *testing.T) {
	for name, document := range documents {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata/wire", name))
			require.NoError(t, err)
			if document.schema != nil {
				schematest.Valid(t, schematest.Load(t, document.schema), text)
			}
			value := reflect.New(document.as)
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			require.NoError(t, decoder.Decode(value.Interface()))
			back, err := json.Marshal(value.Interface())
			require.NoError(t, err)
			require.JSONEq(t, string(text), string(back))
		})
	}
}
