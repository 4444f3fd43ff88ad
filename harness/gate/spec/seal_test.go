package spec

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func testLock(t *testing.T, text string) (Lock, string) {
	t.Helper()
	w, err := Parse([]byte(text), "wish.yaml")
	require.NoError(t, err)
	lock, err := Seal(w, evidence.Toolchain{
		Image: "base", ImageID: "sha256:" + testHash, Locked: true, Mounts: []evidence.ToolMount{},
	})
	require.NoError(t, err)
	sealed, err := lock.JSON()
	require.NoError(t, err)
	return lock, string(sealed)
}

// TestSealIsStable: documents that mean the same are the same bytes, and others are not.
func TestSealIsStable(t *testing.T) {
	_, a := testLock(t, "gate_commands: [pytest -q]\npython: '3.11'\nenv: {B: '1', A: '2'}\n")
	_, b := testLock(t, `{"env":{"A":"2","B":"1"},"python":"3.11","offline":true,"io_boundary":"./","claim_grade":true,
		"gate_commands":[{"cmd":"pytest -q","kind":"tests","report":"auto"}],"schema":"evalbox/wish/v1","network":{"level":"offline"}}`)
	_, c := testLock(t, "gate_commands: [pytest -qq]\npython: '3.11'\nenv: {B: '1', A: '2'}\n")
	require.Equal(t, a, b)
	require.NotEqual(t, a, c)
	require.True(t, strings.HasSuffix(a, "}\n"))
	require.NotContains(t, a, "\r")
}

func TestParseLock(t *testing.T) {
	lock, sealed := testLock(t, "gate_commands: [\"sh -c 'a && b <x>'\"]\n")
	again, err := ParseLock([]byte(sealed), "wish.lock.json")
	require.NoError(t, err)
	require.Equal(t, lock, again)
	require.Contains(t, sealed, "a && b <x>", "not escaped for HTML")

	var compact strings.Builder
	require.NoError(t, json.NewEncoder(&compact).Encode(lock))
	for name, text := range map[string]string{
		"command":    strings.Replace(sealed, "a && b", "a || b", 1),
		"image":      strings.Replace(sealed, `"image_id": "sha256:0`, `"image_id": "sha256:1`, 1),
		"flag":       strings.Replace(sealed, `"claim_grade": true`, `"claim_grade": false`, 1),
		"hash":       strings.Replace(sealed, `"sha256": "`+lock.SHA256[:1], `"sha256": "x`, 1),
		"no hash":    strings.Replace(sealed, `"sha256": "`+lock.SHA256+`"`, `"sha256": ""`, 1),
		"left out":   strings.Replace(sealed, "    \"strict\": false,\n", "", 1),
		"other form": compact.String(),
	} {
		require.NotEqual(t, sealed, text, name)
		changed, err := ParseLock([]byte(text), "wish.lock.json")
		require.ErrorIs(t, err, ErrChanged, name)
		require.ErrorContains(t, err, "wish.lock.json: is not what was sealed", name)
		require.NotEmpty(t, changed.Wish.GateCommands, name)
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown": {strings.Replace(sealed, `"strict"`, `"strickt"`, 1), `unknown key "strickt" in wish`},
		"schema":  {strings.Replace(sealed, LockV1, "evalbox/wish-lock/v2", 1), `want "evalbox/wish-lock/v1"`},
		"type":    {strings.Replace(sealed, `"claim_grade": true`, `"claim_grade": 1`, 1), "wish.claim_grade: 1 must be true or false"},
		"twice":   {strings.Replace(sealed, `"strict": false`, `"strict": false, "strict": true`, 1), "is given twice"},
		"cut":     {sealed[:len(sealed)/2], "is not JSON"},
		"more":    {sealed + "{}", "is not JSON"},
		"yaml":    {"schema: " + LockV1, "is not JSON"},
		"large":   {sealed + strings.Repeat(" ", MaxDocument), "has more than 1MiB"},
	} {
		_, err := ParseLock([]byte(c.text), "wish.lock.json")
		require.ErrorContains(t, err, c.want, name)
		require.NotErrorIs(t, err, ErrChanged, name)
	}
}

// A lock of somebody who knows how to make its hash is held to the rules all the same.
func TestParseLockChecksTheWish(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Lock)
		want   string
	}{
		"boundary": {func(l *Lock) { l.Wish.IOBoundary = "../.." }, `io_boundary: "../.." must be a directory`},
		"unclean":  {func(l *Lock) { l.Wish.IOBoundary = "a/.." }, "io_boundary"},
		"command":  {func(l *Lock) { l.Wish.GateCommands[0].Cmd = "a | b" }, "has the operator |"},
		"offline":  {func(l *Lock) { l.Wish.Network.Level = "open" }, "offline: is true, and network.level is open"},
		"env":      {func(l *Lock) { l.Wish.Env = map[string]string{"NVIDIA_X": "x"} }, `"NVIDIA_X" is refused`},
		"mounts": {func(l *Lock) {
			l.Toolchain.Mounts = []evidence.ToolMount{{Source: "/etc", Target: "/host/etc", Hash: testHash}}
		}, "toolchain.mounts: has 1 directories, and the wish 0"},
		"image":  {func(l *Lock) { l.Toolchain.ImageID = "latest" }, "toolchain.image_id"},
		"locked": {func(l *Lock) { l.Toolchain.ImageID = "" }, "toolchain.locked"},
		"python": {func(l *Lock) { l.Toolchain.Python = "3.9" }, "toolchain.python"},
		"limits": {func(l *Lock) { l.Wish.Limits.TimeoutMS = -1 }, "limits.timeout"},
	} {
		lock, _ := testLock(t, "gate_commands: [pytest]\n")
		c.change(&lock)
		var err error
		lock.SHA256, err = lock.hash()
		require.NoError(t, err)
		sealed, err := lock.JSON()
		require.NoError(t, err)
		_, err = ParseLock(sealed, "l")
		require.ErrorContains(t, err, c.want, name)
		require.NotErrorIs(t, err, ErrChanged, name)
	}
}

func TestSealRefuses(t *testing.T) {
	w, err := Parse([]byte("gate_commands: [a]\nimage: base\ntoolchain: [{source: /go, target: /host/go}]\n"), "w")
	require.NoError(t, err)
	for want, toolchain := range map[string]evidence.Toolchain{
		"toolchain.mounts: has 0 directories, and the wish 1": {Image: "base"},
		"is not the directory of the wish":                    {Image: "base", Mounts: []evidence.ToolMount{{Source: "/other", Target: "/host/go", Hash: testHash}}},
		"must be the SHA-256 of the directory's tree":         {Image: "base", Mounts: []evidence.ToolMount{{Source: "/go", Target: "/host/go"}}},
		"is not the image of the wish":                        {Image: "other", Mounts: []evidence.ToolMount{{Source: "/go", Target: "/host/go", Hash: testHash}}},
	} {
		_, err := Seal(w, toolchain)
		require.ErrorContains(t, err, want)
	}
	_, err = Seal(Spec{}, evidence.Toolchain{})
	require.ErrorContains(t, err, "schema")
}

func TestWorkspace(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "repo", "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("repo", filepath.Join(dir, "in")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink(dir, filepath.Join(outside, "way in")))
	real, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	for boundary, want := range map[string]string{".": real, "repo": filepath.Join(real, "repo"), "in/sub": filepath.Join(real, "repo", "sub")} {
		got, err := Spec{IOBoundary: boundary}.Workspace(filepath.Join(outside, "way in"))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for boundary, want := range map[string]error{"none": fs.ErrNotExist, "out": ErrOutside, "out/x": fs.ErrNotExist, "..": ErrOutside, "/etc": ErrOutside} {
		_, err := Spec{IOBoundary: boundary}.Workspace(dir)
		require.ErrorIs(t, err, want, boundary)
	}
	_, err = Spec{IOBoundary: "file"}.Workspace(dir)
	require.ErrorContains(t, err, "is not a directory")
}
