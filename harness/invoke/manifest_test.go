package invoke

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const goodManifest = `{"run_id": "r", "timestamp": "2026-01-01T00:00:00Z", "seed": 42, "artifacts": ["trace_pack.jsonl"], "more": [1e400, 12345678901234567890]}`

func TestParseManifest(t *testing.T) {
	for name, text := range map[string]string{
		"as it should be": goodManifest,
		"any values":      `{"run_id": "", "timestamp": 0, "seed": null, "artifacts": "x"}`,
		"windows lines":   strings.ReplaceAll(goodManifest, ", ", ",\r\n"),
	} {
		fields, problem := ParseManifest([]byte(text), "m")
		require.Nil(t, problem, name)
		require.Contains(t, fields, "run_id", name)
	}
	fields, problem := ParseManifest([]byte(goodManifest), "m")
	require.Nil(t, problem)
	require.Equal(t, "[1e400, 12345678901234567890]", string(fields["more"]))

	for name, test := range map[string]struct {
		text string
		kind Kind
		say  string
	}{
		"empty":           {"", KindInvalidJSON, "unexpected end"},
		"cut":             {goodManifest[:40], KindInvalidJSON, "at byte 40"},
		"garbage after":   {goodManifest + "x", KindInvalidJSON, "after top-level value"},
		"comma":           {`{"run_id": 1,}`, KindInvalidJSON, "not valid JSON"},
		"NaN":             {`{"seed": NaN}`, KindInvalidJSON, "not valid JSON"},
		"a tab in text":   {"{\"run_id\": \"a\tb\"}", KindInvalidJSON, "not valid JSON"},
		"a byte order":    {"\ufeff" + goodManifest, KindInvalidJSON, "not valid JSON"},
		"not UTF-8":       {"{\"run_id\": \"\xff\"}", KindInvalidJSON, "is not UTF-8 text"},
		"an array":        {"[]", KindNotObject, "but an array"},
		"null":            {" null ", KindNotObject, "but null"},
		"a number":        {"42", KindNotObject, "but a number"},
		"a string":        {`"x"`, KindNotObject, "but a string"},
		"a boolean":       {"true", KindNotObject, "but a boolean"},
		"nothing in it":   {"{}", KindMissingFields, "artifacts, run_id, seed, timestamp"},
		"another case":    {strings.Replace(goodManifest, "seed", "Seed", 1), KindMissingFields, "missing: seed"},
		"below":           {`{"meta": ` + goodManifest + `}`, KindMissingFields, "missing: artifacts"},
		"a field twice":   {strings.Replace(goodManifest, `"more"`, `"artifacts"`, 1), KindDuplicateKey, "has the field \"artifacts\" twice"},
		"nested too deep": {strings.Replace(goodManifest, "1e400", strings.Repeat("[", 2000)+`"]"`+strings.Repeat("]", 2000), 1), KindInvalidJSON, "deeper than 1000"},
	} {
		_, problem := ParseManifest([]byte(test.text), "out/manifest.json")
		require.NotNil(t, problem, name)
		require.Equal(t, test.kind, problem.Kind, name)
		require.ErrorContains(t, problem, test.say, name)
		require.ErrorContains(t, problem, "out/manifest.json: ", name)
	}
	for _, value := range []string{`["` + strings.Repeat("[", 2000) + `\"["]`, "[" + strings.Repeat("[],", 2000) + "[]]", `"\ud800"`} {
		fields, problem := ParseManifest([]byte(strings.Replace(goodManifest, "[1e400, 12345678901234567890]", value, 1)), "m")
		require.Nil(t, problem)
		require.Equal(t, value, string(fields["more"]))
	}
}

func TestLoadManifest(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ManifestName)
	_, err := LoadManifest(t.Context(), path)
	require.Equal(t, KindMissing, kindOf(t, err))
	_, err = LoadManifest(t.Context(), dir)
	require.Equal(t, KindNotRegular, kindOf(t, err))

	require.NoError(t, os.WriteFile(path, []byte(goodManifest), 0o600))
	m, err := LoadManifest(t.Context(), path)
	require.NoError(t, err)
	hash, err := HashArtifact(t.Context(), path)
	require.NoError(t, err)
	require.Equal(t, hash, m.SHA256)
	require.EqualValues(t, len(goodManifest), m.SizeBytes)

	require.NoError(t, os.WriteFile(path, []byte("{}"), 0o600))
	_, err = LoadManifest(t.Context(), path)
	require.Equal(t, KindMissingFields, kindOf(t, err))

	require.NoError(t, os.Truncate(path, MaxDocument+1))
	_, err = LoadManifest(t.Context(), path)
	require.Equal(t, KindTooLarge, kindOf(t, err))
}

// kindOf is the kind of an artifact's error.
func kindOf(t *testing.T, err error) Kind {
	t.Helper()
	var problem *ArtifactError
	require.ErrorAs(t, err, &problem)
	return problem.Kind
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(goodManifest))
	f.Add([]byte(`{"artifacts": [{"path": "a", "sha256": "00"}]}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		fields, problem := ParseManifest(text, "m")
		if problem == nil {
			_ = eachListed(fields["artifacts"], func(listed, *ArtifactError) error { return nil })
		}
	})
}
