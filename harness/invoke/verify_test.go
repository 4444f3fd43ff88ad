package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// outputDir is an output directory with these files; a name that ends with a slash is a
// directory.
func outputDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

const goodTrace = "{\"step\": 1}\n{\"step_id\": \"b\"}\n"

func manifestListing(artifacts string) string {
	return `{"run_id": "r", "timestamp": "t", "seed": 1, "artifacts": ` + artifacts + `}`
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestVerify(t *testing.T) {
	dir := outputDir(t, map[string]string{
		ManifestName:  manifestListing(`["trace_pack.jsonl", {"path": "plots/a.png", "sha256": "` + strings.ToUpper(hashOf("a")) + `"}, {"name": "./b"}]`),
		"plots/a.png": "a", "b": "b", TracePackName: goodTrace, AdapterMetadataName: `{"x": 1}`, "not listed": "x",
	})
	report, err := Verify(t.Context(), dir, VerifyOptions{})
	require.NoError(t, err)
	require.True(t, report.OK, report.Problems)
	two := int64(2)
	manifest, err := os.ReadFile(filepath.Join(dir, ManifestName))
	require.NoError(t, err)
	require.Equal(t, []Artifact{
		{Path: ManifestName, Role: RoleManifest, SizeBytes: int64(len(manifest)), SHA256: hashOf(string(manifest))},
		{Path: TracePackName, Role: RoleTracePack, SizeBytes: int64(len(goodTrace)), SHA256: hashOf(goodTrace), Records: &two, Listed: true},
		{Path: AdapterMetadataName, Role: RoleAdapterMetadata, SizeBytes: 8, SHA256: hashOf(`{"x": 1}`)},
		{Path: "plots/a.png", Role: RoleListed, SizeBytes: 1, SHA256: hashOf("a"), Listed: true, HashListed: true},
		{Path: "b", Role: RoleListed, SizeBytes: 1, SHA256: hashOf("b"), Listed: true},
	}, report.Artifacts)
	require.Equal(t, `"r"`, string(report.Manifest["run_id"]))

	again, err := Verify(t.Context(), dir, VerifyOptions{})
	require.NoError(t, err)
	require.Equal(t, report, again)

	_, err = Verify(t.Context(), filepath.Join(dir, "none"), VerifyOptions{})
	require.Equal(t, KindMissing, kindOf(t, err))
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	_, err = Verify(ctx, dir, VerifyOptions{})
	require.ErrorIs(t, err, stop)
}

// TestVerifyLists: the forms that a manifest may list artifacts in.
func TestVerifyLists(t *testing.T) {
	dir := t.TempDir()
	for _, form := range []string{
		`[]`, `{}`, `["a"]`, `[{"path": "a"}]`, `[{"file": "a", "hash": "sha256:` + hashOf("a") + `"}]`, `[{"file_path": "a", "sha256": null}]`,
		`{"a": "` + hashOf("a") + `"}`, `{"a": {"sha256": "` + hashOf("a") + `"}}`, `{"a": null}`, `["` + OutputDir + `/a"]`, `["` + dir + `/a"]`,
	} {
		for name, text := range map[string]string{ManifestName: manifestListing(form), TracePackName: "", "a": "a"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		report, err := Verify(t.Context(), dir, VerifyOptions{})
		require.NoError(t, err)
		require.True(t, report.OK, "%s: %v", form, report.Problems)
	}
	for form, want := range map[string]Kind{
		`"a"`: KindInvalidList, `null`: KindInvalidList, `[1]`: KindInvalidList, `[{"size": 1}]`: KindInvalidList, `[null]`: KindInvalidList,
		`["never"]`: KindMissing, `["a/b"]`: KindMissing, `["../x"]`: KindOutside, `["/etc/passwd"]`: KindOutside, `["."]`: KindOutside,
		`[""]`: KindOutside, `["link"]`: KindNotRegular, `["folder"]`: KindNotRegular, `["linked/a"]`: KindNotRegular, `["inner/a"]`: KindNotRegular, `["a/"]`: KindOutside, `["folder/."]`: KindOutside,
		`[{"path": "a", "sha256": "` + hashOf("b") + `"}]`: KindHashMismatch, `[{"path": "a", "sha256": "md5:00"}]`: KindHashInvalid,
		`{"a": 7}`: KindHashInvalid, `["adapter_metadata.json"]`: KindMissing, `["adapter_metadata.json", "adapter_metadata.json"]`: KindMissing,
		`[{"path": "a", "path": "b"}]`: KindDuplicateKey, `[{"path": "a", "sha256": null, "sha256": "` + hashOf("b") + `"}]`: KindDuplicateKey,
	} {
		dir := outputDir(t, map[string]string{ManifestName: manifestListing(form), TracePackName: "", "a": "a", "folder/": ""})
		require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
		require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "linked")))
		require.NoError(t, os.Symlink(".", filepath.Join(dir, "inner")))
		report, err := Verify(t.Context(), dir, VerifyOptions{})
		require.NoError(t, err)
		require.False(t, report.OK, form)
		require.Len(t, report.Problems, 1, form)
		require.Equal(t, want, report.Problems[0].Kind, "%s: %v", form, report.Problems[0])
	}
}

// TestVerifyTellsEverything: one problem does not hide the others, and what is wrong is
// hashed all the same.
func TestVerifyTellsEverything(t *testing.T) {
	dir := outputDir(t, map[string]string{ManifestName: "{bad", TracePackName: "{\"step\": 1}\n{bad\n" + strings.Repeat("{\"step\": 3}\n", 20_000), AdapterMetadataName: "[]"})
	report, err := Verify(t.Context(), dir, VerifyOptions{})
	require.NoError(t, err)
	var kinds []string
	for _, p := range report.Problems {
		kinds = append(kinds, fmt.Sprintf("%s:%d %s", p.Path, p.Line, p.Kind))
	}
	require.Equal(t, []string{"manifest.json:0 invalid_json", "trace_pack.jsonl:2 invalid_json", "adapter_metadata.json:0 not_object"}, kinds)
	require.Nil(t, report.Manifest)
	require.Len(t, report.Artifacts, 3)
	hash, err := HashArtifact(t.Context(), filepath.Join(dir, TracePackName))
	require.NoError(t, err)
	require.Equal(t, hash, report.Artifacts[1].SHA256)
	require.EqualValues(t, 1, *report.Artifacts[1].Records)

	report, err = Verify(t.Context(), t.TempDir(), VerifyOptions{})
	require.NoError(t, err)
	require.Len(t, report.Problems, 2, "manifest and trace are missing")

	many := make([]string, 250)
	for i := range many {
		many[i] = fmt.Sprintf("%q", fmt.Sprint("never", i))
	}
	dir = outputDir(t, map[string]string{ManifestName: manifestListing("[" + strings.Join(many, ",") + "]"), TracePackName: ""})
	report, err = Verify(t.Context(), dir, VerifyOptions{})
	require.NoError(t, err)
	require.Len(t, report.Problems, 100)
	require.Equal(t, 150, report.ProblemsDropped)
}

// TestVerifyIsBounded: whatever a manifest holds, a report is short, and a list of any
// length is read one entry at a time.
func TestVerifyIsBounded(t *testing.T) {
	long := strings.Repeat("ä", 150)
	for form, want := range map[string]struct {
		kind    Kind
		dropped int
	}{
		`["` + strings.Repeat("a", 9_000_000) + `"]`:                    {KindUnreadable, 0},
		`["` + long + strings.Repeat("b", 4000) + `"]`:                  {KindUnreadable, 0},
		`[` + strings.Repeat("1,", 300_000) + `1]`:                      {KindInvalidList, maxListed + 1 - 100},
		`{` + strings.Repeat(`"a":1,`, 300_000) + `"a":1}`:              {KindHashInvalid, maxListed + 1 - 100},
		`[` + strings.Repeat(`"manifest.json",`, 200_000) + `"a"]`:      {KindTooMany, 0},
		`[{` + strings.Repeat(`"path":"a",`, 100_000) + `"path": "a"}]`: {KindDuplicateKey, 0},
	} {
		dir := outputDir(t, map[string]string{ManifestName: manifestListing(form), TracePackName: ""})
		report, err := Verify(t.Context(), dir, VerifyOptions{})
		require.NoError(t, err)
		require.NotEmpty(t, report.Problems, "%.40s", form)
		require.Equal(t, want.kind, report.Problems[0].Kind, "%.40s: %v", form, report.Problems[0])
		require.Equal(t, want.dropped, report.ProblemsDropped, "%.40s", form)
		require.Less(t, len(report.Problems[0].Error()), 500)
		require.True(t, utf8.ValidString(report.Problems[0].Error()))
	}
	wide := &strings.Builder{}
	for i := range maxFields + 1 {
		fmt.Fprintf(wide, `"%d":1,`, i)
	}
	_, problem := ParseManifest([]byte("{"+wide.String()+`"seed":1}`), "m")
	require.Equal(t, KindTooMany, problem.Kind)
}

// TestVerifyAbsent: what is optional and listed must be there.
func TestVerifyAbsent(t *testing.T) {
	profile := Profile{Artifacts: []Declared{{Path: "ev.jsonl", Format: FormatJSONL, Optional: true}}}
	dir := outputDir(t, map[string]string{ManifestName: manifestListing(`[{"path": "ev.jsonl", "sha256": "` + hashOf("x") + `"}]`), TracePackName: ""})
	report, err := Verify(t.Context(), dir, VerifyOptions{Profile: profile})
	require.NoError(t, err)
	require.Len(t, report.Problems, 1)
	require.EqualError(t, report.Problems[0], "ev.jsonl: is listed, but does not exist")
}

const profileText = `schema: evalbox/artifacts/v1
artifacts:
  - {path: metrics.json, format: json, keys: [accuracy]}
  - {path: log/events.jsonl, format: jsonl, keys: [at], optional: true}
  - {path: model.bin}
`

func TestVerifyProfile(t *testing.T) {
	profile, err := ParseProfile([]byte(profileText), "profile.yaml")
	require.NoError(t, err)
	files := map[string]string{ManifestName: manifestListing("[]"), TracePackName: "", "metrics.json": `{"accuracy": 1}`, "model.bin": "m"}
	report, err := Verify(t.Context(), outputDir(t, files), VerifyOptions{Profile: profile})
	require.NoError(t, err)
	require.True(t, report.OK, report.Problems)
	require.Len(t, report.Artifacts, 4)

	files["log/events.jsonl"] = "{\"at\": 1}\n\n{\"t\": 2}\n"
	files["metrics.json"] = "{}"
	delete(files, "model.bin")
	report, err = Verify(t.Context(), outputDir(t, files), VerifyOptions{Profile: profile})
	require.NoError(t, err)
	require.Len(t, report.Problems, 3)
	require.ErrorContains(t, report.Problems[0], "metrics.json: required fields are missing: accuracy")
	require.ErrorContains(t, report.Problems[1], "log/events.jsonl:3: required fields are missing: at")
	require.ErrorContains(t, report.Problems[2], "model.bin: does not exist")

	_, err = Verify(t.Context(), t.TempDir(), VerifyOptions{Profile: Profile{Artifacts: []Declared{{Path: "../x"}}}})
	require.ErrorContains(t, err, "must be a path below")
}

func TestParseProfileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"artifacts: []":                       "schema",
		"{path: ../x}":                        "profile.yaml:3",
		"{path: /x}":                          "must be a path below the output directory",
		"{path: a//b}":                        "must be a path below the output directory",
		"{path: manifest.json}":               "is declared already",
		"{path: x, format: xml}":              "must be one of bytes, json, jsonl",
		"{path: x, keys: [a]}":                "needs the format json or jsonl",
		"{path: x, format: json, keys: ['']}": "must not be empty",
		"{path: x, needed: true}":             "needed",
		"{path: x}\n  - {path: x}":            "profile.yaml:4",
		strings.Repeat("{path: x}\n  - ", 1000) + "{path: end}": "at most 1000",
	} {
		if strings.HasPrefix(text, "{") {
			text = "schema: evalbox/artifacts/v1\nartifacts:\n  - " + text
		}
		_, err := ParseProfile([]byte(text), "profile.yaml")
		require.ErrorContains(t, err, want, text)
	}
}

// TestNothingIsChanged: whatever is read of a tool's files, they stay as they are (M3-01).
func TestNothingIsChanged(t *testing.T) {
	dir := outputDir(t, map[string]string{
		ManifestName: manifestListing(`["a", "never", "trace_pack.jsonl"]`), TracePackName: goodTrace + "{bad", AdapterMetadataName: "{}", "a": "a",
	})
	before := contents(t, dir)
	profile, err := ParseProfile([]byte(profileText), "p")
	require.NoError(t, err)
	for _, mode := range []Mode{Strict, Compat} {
		_, err = Verify(t.Context(), dir, VerifyOptions{Mode: mode, Profile: profile})
		require.NoError(t, err)
	}
	for _, name := range []string{ManifestName, TracePackName, "a"} {
		_, err := HashArtifact(t.Context(), filepath.Join(dir, name))
		require.NoError(t, err)
	}
	_, err = LoadManifest(t.Context(), filepath.Join(dir, ManifestName))
	require.NoError(t, err)
	_, err = LoadTracePack(t.Context(), filepath.Join(dir, TracePackName), Strict)
	require.Error(t, err)
	require.Equal(t, before, contents(t, dir))
}

// contents are all entries of a directory with everything that a change would change.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		all[path] = fmt.Sprintln(info.Mode(), info.Size(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[path] += hashOf(string(text))
		}
		return nil
	}))
	return all
}

func TestHashArtifact(t *testing.T) {
	dir := outputDir(t, map[string]string{"empty": "", "text": "deterministic content"})
	require.NoError(t, os.Symlink("text", filepath.Join(dir, "link")))
	for name, want := range map[string]string{
		"empty": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"text":  "637f557ec73a25a2aec3b6dedf45705a0a0c2bffd90f102911df85501a1a547f",
		"link":  "637f557ec73a25a2aec3b6dedf45705a0a0c2bffd90f102911df85501a1a547f",
	} {
		hash, err := HashArtifact(t.Context(), filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, hash)
	}
	_, err := HashArtifact(t.Context(), dir)
	require.Equal(t, KindNotRegular, kindOf(t, err))
	_, err = HashArtifact(t.Context(), filepath.Join(dir, "none"))
	require.Equal(t, KindMissing, kindOf(t, err))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = HashArtifact(ctx, filepath.Join(dir, "text"))
	require.ErrorIs(t, err, context.Canceled)
}

// TestVerifyOpensDirectories: anything else is not opened, so nothing waits for it.
func TestVerifyOpensDirectories(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := Verify(t.Context(), pipe, VerifyOptions{})
	require.Equal(t, KindNotDirectory, kindOf(t, err))
	require.EqualError(t, err, pipe+": is not a directory (a named pipe)")
}
