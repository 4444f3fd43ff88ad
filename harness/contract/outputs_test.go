package contract

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/policy"
)

func TestJudgeOutputs(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.txt")
	require.NoError(t, os.WriteFile(old, []byte("{}"), 0o600))
	of := func(path string) declared { return declared{path: path, target: "/repo/out/" + path} }
	w := written{
		files: map[string]writtenFile{
			"/repo/out/a":     {size: 60, sha256: "aa"},
			"/repo/out/b":     {size: 50, sha256: "bb"},
			"/repo/out/c.txt": {size: 2, sha256: "cc", in: filepath.Dir(old), kept: old},
			"/repo/cache":     {size: 1, sha256: "dd"},
			"/work/final/x":   {size: 3, sha256: "ee"},
		},
		other: map[string]string{"/repo/out/link": "symlink: not a regular file"},
	}
	e := Effective{OutputFiles: 100, Artifacts: 10}
	e.Contract.Outputs.Artifacts = []ArtifactSpec{{Path: "c.txt", MIMEType: "application/json"}, {Path: "a"}}
	before, gone := of("old"), of("gone")
	before.source, gone.source = old, old
	before.field = "outputs.output_files[5]"
	w.deleted = map[string]bool{"/repo/out/gone": true}
	j := judgeOutputs(Resolved{
		outputs:   []declared{of("a"), of("b"), of("a"), of("none"), of("link"), before, gone},
		artifacts: []declared{of("c.txt"), of("a")},
	}, e, w)
	require.Equal(t, []OutputFile{
		{File: trial.File{Path: "/work/final/x", Size: 3, SHA256: "ee"}, Retention: "evidence"},
		{File: trial.File{Path: "a", Size: 60, SHA256: "aa"}, Declared: true, Retention: "evidence"},
		{File: trial.File{Path: "b", Size: 50, SHA256: "bb"}, Declared: true, Retention: "evidence"},
		{File: trial.File{Path: "cache", Size: 1, SHA256: "dd"}, Retention: "evidence"},
		{File: trial.File{Path: "old", Size: 2, SHA256: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, Declared: true, Retention: "evidence"},
	}, j.files)
	require.Equal(t, []string{`outputs.output_files[5] "old" was there before with the same content`}, j.warnings)
	var texts []string
	for _, d := range j.differences {
		texts = append(texts, d.String())
	}
	require.Equal(t, []string{
		`output file "b" is too large: 50 bytes, with it 110 in all; at most 100B in all output files`,
		`output file "none" is missing: it was not written`,
		`output file "link" is not a regular file: symlink: not a regular file`,
		`output file "gone" is missing: it was not written`,
		`artifact "a" is too large: 60 bytes, with it 62 in all; at most 10B in all artifacts`,
		`output file "cache" is not named in the contract`,
		`output file "/work/final/x" is not named in the contract`,
	}, texts)
	require.Len(t, Outcome{Differences: j.differences}.failures(), 5)
	require.Equal(t, []Artifact{{MIMEType: "application/json", Data: "{}", Metadata: map[string]string{
		"path": "c.txt", "size_bytes": "2", "sha256": "cc", "kept_at": old, "retention": "evidence",
	}}}, j.artifacts)
}

// A contract that names no file takes whatever comes, up to the limit.
func TestJudgeUndeclared(t *testing.T) {
	w := written{files: map[string]writtenFile{"/repo/a": {size: 10 << 20}}}
	j := judgeOutputs(Resolved{}, Effective{OutputFiles: 10 * policy.MiB}, w)
	require.Empty(t, j.differences)
	w.files["/repo/b"] = writtenFile{size: 1}
	j = judgeOutputs(Resolved{}, Effective{OutputFiles: 10 * policy.MiB}, w)
	require.Len(t, j.differences, 1)
	require.Equal(t, "too_large", j.differences[0].Problem)
	require.Equal(t, "b", j.differences[0].Path)
}

func TestJudgeManyExtra(t *testing.T) {
	w := written{files: map[string]writtenFile{}}
	for i := range 300 {
		w.files["/repo/"+strings.Repeat("x", i+1)] = writtenFile{}
	}
	j := judgeOutputs(Resolved{outputs: []declared{{path: "x", target: "/repo/x"}}}, Effective{}, w)
	require.Len(t, j.files, 300)
	require.Len(t, j.differences, maxListed)
	require.Equal(t, []string{"199 more files are not named in the contract; output_files lists them"}, j.warnings)
}
