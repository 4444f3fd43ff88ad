//go:build unix

package evidence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func folder(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	return root, dir
}

func TestWriteAndRead(t *testing.T) {
	root, dir := folder(t)
	want := Findings{Pre: []Finding{{Reason: ReasonDirty, Detail: "x"}}, Differences: []Finding{}}
	require.NoError(t, Write(root, FindingsFile, want))
	var got Findings
	require.NoError(t, Read(root, FindingsFile, MaxDocument, &got))
	assert.Equal(t, want, got)

	// A link is replaced, and what it leads to stays as it is.
	outside := filepath.Join(dir, "outside")
	require.NoError(t, os.WriteFile(outside, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink("../outside", filepath.Join(dir, PlanFile)))
	require.NoError(t, Write(root, PlanFile, Plan{}))
	text, err := os.ReadFile(outside)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))
	require.NoError(t, Read(root, PlanFile, MaxDocument, &Plan{}))

	// Whatever fails leaves nothing.
	require.ErrorContains(t, Write(root, TestsFile, map[string]any{"a": 1.5}), TestsFile)
	require.NoError(t, os.Mkdir(filepath.Join(dir, TestsFile), 0o755))
	require.Error(t, Write(root, TestsFile, Tests{}))
	for _, name := range []string{"", ".", "../x", "/x", "a/../b"} {
		require.ErrorAs(t, Write(root, name, Plan{}), new(*FileError), name)
	}
	left, err := os.ReadDir(filepath.Join(dir, Dir))
	require.NoError(t, err)
	assert.Len(t, left, 3)
}

func TestReadRefuses(t *testing.T) {
	root, dir := folder(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Mkdir(at("folder"), 0o755))
	require.NoError(t, os.WriteFile(at("folder/file"), []byte(`{"artifacts": []}`), 0o600))
	require.NoError(t, os.WriteFile(at("empty"), []byte(" \n"), 0o600))
	require.NoError(t, os.WriteFile(at("cut"), []byte("{\n\"artifacts\": ["), 0o600))
	require.NoError(t, os.WriteFile(at("binary"), []byte("\x7fELF"), 0o600))
	require.NoError(t, os.WriteFile(at("other"), []byte(`{"artifacts": "none"}`), 0o600))
	require.NoError(t, os.WriteFile(at("less"), []byte(`{}`), 0o600))
	require.NoError(t, os.WriteFile(at("twice"), []byte(`{"artifacts": [], "artifacts": []}`), 0o600))
	require.NoError(t, os.WriteFile(at("more"), []byte(`{"artifacts": []} []`), 0o600))
	require.NoError(t, os.Symlink("folder/file", at("link")))
	require.NoError(t, os.Symlink("folder", at("linked")))
	require.NoError(t, os.Symlink("nowhere", at("dangling")))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	var a Artifacts
	require.NoError(t, Read(root, "folder/file", 17, &a))
	for name, want := range map[string]string{
		"folder":      "folder is not a regular file (a directory)",
		"link":        "link is not a regular file (a symbolic link)",
		"dangling":    "dangling is not a regular file (a symbolic link)",
		"pipe":        "pipe is not a regular file (a named pipe)",
		"linked/file": "linked/file is behind linked, which is a symbolic link",
		"cut/file":    "cut/file is behind cut, which is a file",
		"missing":     "missing is missing",
		"no/missing":  "no/missing is missing",
		"empty":       "empty is not one valid JSON document: it is empty",
		"cut":         "cut is not one valid JSON document: unexpected EOF, at line 2, byte 16",
		"binary":      "binary is not one valid JSON document: invalid character '\\x7f' at start of value, at line 1, byte 0",
		"twice":       `twice has another form than expected: the document has the key "artifacts" twice`,
		"other":       "other has another form than expected: artifacts must be an array, is a string",
		"less":        `less has another form than expected: the document has no key "artifacts"`,
		"more":        "more is not one valid JSON document: invalid character '[' after top-level value, at line 1, byte 18",
		"../x":        "is not a path below the gate directory",
	} {
		t.Run(name, func(t *testing.T) {
			err := Read(root, name, MaxDocument, &a)
			require.ErrorAs(t, err, new(*FileError))
			require.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "exist")
			assert.Equal(t, strings.HasSuffix(name, "missing"), errors.Is(err, os.ErrNotExist))
		})
	}
	assert.ErrorContains(t, Read(root, "folder/file", 16, &a), "has more than 16 bytes")
}

// gateDir is a small gate directory with its hashes.
func gateDir(t *testing.T) (*os.Root, string) {
	t.Helper()
	root, dir := folder(t)
	for name, text := range map[string]string{
		WishLockFile: "{}\n", RunManifestFile: "{}\n", PlanFile: "{}\n", RunLogFile: "ok\n", TestsFile: "{}\n", EnvSnapshotFile: "{}\n",
		BehaviorHashFile: "x\n", PatchFile: "diff\n", RawDir + "/01.stdout.log": "out\n", RawDir + "/01.report": "<x/>\n", RawDir + "/repeat-2/outputs/01/b.report": "2", OutputsDir + "/01/a/b.bin": "\x00",
	} {
		require.NoError(t, WriteText(root, name, []byte(text)))
	}
	require.NoError(t, WriteText(root, VerdictFile, []byte("{}")))
	rehash(t, root)
	return root, dir
}

func rehash(t *testing.T, root *os.Root) {
	t.Helper()
	_, err := HashArtifacts(t.Context(), root)
	require.NoError(t, err)
	_, err = WriteManifest(t.Context(), root)
	require.NoError(t, err)
}

func TestHashes(t *testing.T) {
	root, dir := gateDir(t)
	artifacts, err := HashArtifacts(t.Context(), root)
	require.NoError(t, err)
	roles := map[string]Role{}
	last := ""
	for _, f := range artifacts.Artifacts {
		roles[f.FilePath] = f.Role
		assert.Less(t, last, f.FilePath)
		last = f.FilePath
	}
	assert.Equal(t, map[string]Role{
		PatchFile: RoleArtifact, RunLogFile: RoleLog, TestsFile: RoleTest, RawDir + "/01.stdout.log": RoleLog,
		RawDir + "/01.report": RoleTest, RawDir + "/repeat-2/outputs/01/b.report": RoleArtifact, OutputsDir + "/01/a/b.bin": RoleArtifact,
	}, roles)
	sum, err := WriteManifest(t.Context(), root)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	require.NoError(t, err)
	of := sha256.Sum256(text)
	assert.Equal(t, hex.EncodeToString(of[:]), sum)
	var m Manifest
	require.NoError(t, Decode(text, &m))
	assert.Equal(t, manifestVersion, m.SchemaVersion)
	roles = map[string]Role{}
	for _, f := range m.Files {
		roles[f.FilePath] = f.Role
	}
	assert.Len(t, m.Files, 13)
	assert.Equal(t, RolePlan, roles[WishLockFile])
	assert.Equal(t, RoleSnapshot, roles[EnvSnapshotFile])
	assert.Equal(t, RoleProof, roles[ArtifactsFile])
	assert.NotContains(t, roles, ManifestFile)
	assert.NotContains(t, roles, VerdictFile)

	report, err := CheckFiles(t.Context(), root)
	require.NoError(t, err)
	assert.Equal(t, CheckReport{ManifestSHA256: sum, Files: 13}, report)

	require.NoError(t, os.Symlink("b.bin", filepath.Join(dir, OutputsDir, "01/a/link")))
	_, err = HashArtifacts(t.Context(), root)
	require.ErrorContains(t, err, "a symbolic link, not a regular file")
	_, err = WriteManifest(t.Context(), root)
	require.ErrorContains(t, err, "a symbolic link, not a regular file")
}

func TestCheckFilesFinds(t *testing.T) {
	sum := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	listed := func(dir string, change func(m *Manifest)) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) {
			t.Helper()
			var m Manifest
			require.NoError(t, Read(root, ManifestFile, MaxDocument, &m))
			change(&m)
			require.NoError(t, Write(root, ManifestFile, m))
		}
	}
	told := func(change func(a *Artifacts)) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) {
			t.Helper()
			var a Artifacts
			require.NoError(t, Read(root, ArtifactsFile, MaxDocument, &a))
			change(&a)
			require.NoError(t, Write(root, ArtifactsFile, a))
			_, err := WriteManifest(t.Context(), root)
			require.NoError(t, err)
		}
	}
	file := func(name, text string) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) {
			t.Helper()
			require.NoError(t, WriteText(root, name, []byte(text)))
		}
	}
	instead := func(name string, make func(path string) error) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) {
			t.Helper()
			require.NoError(t, root.RemoveAll(name))
			require.NoError(t, make(filepath.Join(root.Name(), name)))
		}
	}
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	link := func(to string) func(string) error {
		return func(path string) error { return os.Symlink(to, path) }
	}
	log := RawDir + "/01.stdout.log"
	for name, c := range map[string]struct {
		change  func(*testing.T, *os.Root)
		missing string
		subject string
		detail  string
	}{
		"required file gone":   {func(t *testing.T, r *os.Root) { t.Helper(); require.NoError(t, r.Remove(RunLogFile)) }, RunLogFile, "", ""},
		"listed file gone":     {func(t *testing.T, r *os.Root) { t.Helper(); require.NoError(t, r.Remove(log)) }, log, "", ""},
		"run manifest gone":    {func(t *testing.T, r *os.Root) { t.Helper(); require.NoError(t, r.Remove(RunManifestFile)) }, RunManifestFile, "", ""},
		"folder gone":          {func(t *testing.T, r *os.Root) { t.Helper(); require.NoError(t, r.RemoveAll(RawDir)) }, log, "", ""},
		"manifest gone":        {func(t *testing.T, r *os.Root) { t.Helper(); require.NoError(t, r.Remove(ManifestFile)) }, ManifestFile, "", ""},
		"changed":              {file(RunLogFile, "no\n"), "", RunLogFile, "is not what was hashed"},
		"cut":                  {file(log, "o"), "", log, "is not what was hashed"},
		"emptied":              {file(log, ""), "", log, "is not what was hashed"},
		"added":                {file(RawDir+"/02.stdout.log", "x"), "", RawDir + "/02.stdout.log", "is not in evidence/evidence.manifest"},
		"left of a crash":      {file(TestsFile+".new-X", "x"), "", TestsFile + ".new-X", "is not in"},
		"a pipe instead":       {instead(log, pipe), "", log, "named pipe"},
		"a link instead":       {instead(log, link("01.report")), "", log, "symbolic link"},
		"a link to the same":   {instead(log, link("../../copy")), "", log, "symbolic link"},
		"a folder instead":     {instead(log, func(path string) error { return os.Mkdir(path, 0o755) }), log, "", ""},
		"a linked folder":      {instead(RawDir, link("../elsewhere")), "", RawDir, "symbolic link"},
		"a pipe added":         {instead(RawDir+"/pipe", pipe), "", RawDir + "/pipe", "named pipe"},
		"a name without UTF-8": {instead(RawDir+"/new\xff", func(path string) error { return os.WriteFile(path, nil, 0o600) }), "", RawDir + "/new\xff", "cannot be listed"},
		"such a folder":        {instead(RawDir+"/dir\xff", func(path string) error { return os.Mkdir(path, 0o755) }), "", RawDir + "/dir\xff", "cannot be listed"},
		"manifest is a pipe":   {instead(ManifestFile, pipe), "", ManifestFile, "named pipe"},
		"manifest cut":         {file(ManifestFile, `{"schema_version": "1.0.0", "files": [`), "", ManifestFile, "not one valid JSON"},
		"manifest of others":   {listed("", func(m *Manifest) { m.SchemaVersion = "2" }), "", ManifestFile, "is not what node 4 writes"},
		"leads out":            {listed("", func(m *Manifest) { m.Files[0].FilePath = "../x" }), "", ManifestFile, `lists "../x", which is not a file of nodes 1 to 4`},
		"absolute":             {listed("", func(m *Manifest) { m.Files[0].FilePath = "/etc/passwd" }), "", ManifestFile, `lists "/etc/passwd", which is not a file`},
		"of another node":      {listed("", func(m *Manifest) { m.Files[0].FilePath = VerdictFile }), "", ManifestFile, "which is not a file of nodes 1 to 4"},
		"itself":               {listed("", func(m *Manifest) { m.Files[0].FilePath = ManifestFile }), "", ManifestFile, "which is not a file of nodes 1 to 4"},
		"twice":                {listed("", func(m *Manifest) { m.Files = append(m.Files, m.Files[0]) }), "", ManifestFile, "is not what node 4 writes"},
		"another role":         {listed("", func(m *Manifest) { m.Files[0].Role = "other" }), "", ManifestFile, "is not what node 4 writes"},
		"no hash":              {listed("", func(m *Manifest) { m.Files[0].SHA256 = "" }), "", RunManifestFile, "is not what was hashed"},
		"a file not listed":    {listed("", func(m *Manifest) { m.Files = m.Files[1:] }), "", RunManifestFile, "is not in"},
		"artifact of no file":  {told(func(a *Artifacts) { a.Artifacts[0].FilePath = "../x" }), "", ArtifactsFile, "does not follow from"},
		"plan as artifact":     {told(func(a *Artifacts) { a.Artifacts[0].FilePath = PlanFile }), "", ArtifactsFile, "does not follow from"},
		"artifact twice":       {told(func(a *Artifacts) { a.Artifacts[1] = a.Artifacts[0] }), "", ArtifactsFile, "does not follow from"},
		"artifact left out":    {told(func(a *Artifacts) { a.Artifacts = a.Artifacts[1:] }), "", ArtifactsFile, "does not follow from"},
		"artifact's hash":      {told(func(a *Artifacts) { a.Artifacts[0].SHA256 = sum("other") }), "", ArtifactsFile, "does not follow from"},
		"artifact's role":      {told(func(a *Artifacts) { a.Artifacts[0].Role = RolePlan }), "", ArtifactsFile, "does not follow from"},
		"artifacts.json no JSON": {func(t *testing.T, r *os.Root) {
			t.Helper()
			require.NoError(t, WriteText(r, ArtifactsFile, []byte("[]")))
			_, err := WriteManifest(t.Context(), r)
			require.NoError(t, err)
		}, "", ArtifactsFile, "does not follow from"},
	} {
		t.Run(name, func(t *testing.T) {
			root, dir := gateDir(t)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "copy"), []byte("out\n"), 0o600))
			require.NoError(t, os.CopyFS(filepath.Join(dir, "elsewhere"), os.DirFS(filepath.Join(dir, RawDir))))
			c.change(t, root)
			report, err := CheckFiles(t.Context(), root)
			require.NoError(t, err)
			if c.missing != "" {
				assert.Contains(t, report.Missing, c.missing)
				return
			}
			found := false
			for _, f := range report.Findings {
				found = found || f.Subject == c.subject && strings.Contains(f.Detail, c.detail)
				assert.Equal(t, ReasonTampered, f.Reason)
			}
			assert.True(t, found, "%+v", report)
		})
	}
}

func TestCheckFilesIsCanceled(t *testing.T) {
	root, _ := gateDir(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	_, err := CheckFiles(ctx, root)
	require.ErrorIs(t, err, enough)
	_, err = WriteManifest(ctx, root)
	require.ErrorIs(t, err, enough)
}

// TestThousandsOfFiles are hashed and checked.
func TestThousandsOfFiles(t *testing.T) {
	root, dir := gateDir(t)
	for i := range 3000 {
		at := filepath.Join(dir, OutputsDir, fmt.Sprintf("02/%02d", i%50))
		require.NoError(t, os.MkdirAll(at, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(at, fmt.Sprint(i)), []byte{byte(i)}, 0o600))
	}
	rehash(t, root)
	report, err := CheckFiles(t.Context(), root)
	require.NoError(t, err)
	assert.Equal(t, 3013, report.Files)
	assert.Empty(t, report.Missing)
	assert.Empty(t, report.Findings)
}

// TestRawNames: the layout of the raw files is part of what a gate directory means.
func TestRawNames(t *testing.T) {
	assert.Equal(t, "evidence/raw/03.stdout.log", RawFile("", 3, "stdout.log"))
	assert.Equal(t, "evidence/raw/baseline/100.report", RawFile(BaselinePass, 100, "report"))
	assert.Equal(t, "evidence/raw/repeat-2/01.result.json", RawFile(RepeatPass(2), 1, "result.json"))
	assert.Equal(t, "evidence/outputs/01", OutputDir("", 1))
	assert.Equal(t, "evidence/raw/repeat-3/outputs/01", OutputDir(RepeatPass(3), 1))
	assert.Equal(t, []string{"", "repeat-2", "repeat-3"}, Passes(RunManifest{Mode: Mode{Repeats: 3}}))
	assert.Equal(t, []string{"baseline", ""}, Passes(RunManifest{Baseline: "/b"}))
}
