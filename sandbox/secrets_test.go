package sandbox

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// TestSecretsReachTheProgramAndNothingElse: records, logs, labels and results do not have them.
func TestSecretsReachTheProgramAndNothingElse(t *testing.T) {
	const fromVariable, fromFile = "planted-4711-variable", "planted-4711\nfile"
	t.Setenv("PLANTED_KEY", fromVariable)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(fromFile+"\n"), 0o600))
	var log bytes.Buffer
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		if p.Env()["PLANTED_KEY"] != fromVariable || p.Env()["TOKEN"] != fromFile {
			return 1
		}
		return 0
	})
	r := newFakeRunner(t, fake, WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	req := command("true")
	req.Secrets = []Secret{{Name: "PLANTED_KEY"}, {Name: "TOKEN", File: file}}
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)

	rec, err := r.Record("r1")
	require.NoError(t, err)
	require.Equal(t, []string{"PLANTED_KEY", "TOKEN"}, rec.Spec.Job.Secrets)
	encoded, err := res.Encode()
	require.NoError(t, err)
	request, err := req.MarshalJSON()
	require.NoError(t, err)
	for _, text := range []string{string(encoded), string(request), log.String(), fmt.Sprintf("%+v", fake.Created)} {
		require.NotContains(t, text, "planted-4711")
	}
	requireNowhere(t, r.Store().Dir(), "planted-4711")
}

// requireNowhere searches the names and the content of all files in a directory.
func requireNowhere(t *testing.T, dir, text string) {
	t.Helper()
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		require.NotContains(t, path, text)
		if entry.Type().IsRegular() {
			files++
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NotContains(t, string(content), text, path)
		}
		return nil
	}))
	require.Positive(t, files)
}

func TestSecretsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, c := range map[string]struct {
		secret Secret
		want   string
	}{
		"no variable": {Secret{Name: "EVALBOX_NO_SUCH_VARIABLE"}, `secret "EVALBOX_NO_SUCH_VARIABLE": the caller has no such variable`},
		"no file":     {Secret{Name: "K", File: filepath.Join(dir, "hunter2")}, `secret "K": its file cannot be read: no such file or directory`},
		"a directory": {Secret{Name: "K", File: dir}, `secret "K": its file cannot be read: is not a regular file (a directory)`},
		"NUL":         {Secret{Name: "K", File: write("nul", "hunter2\x00")}, `secret "K": has a value with a NUL byte`},
		"not text":    {Secret{Name: "K", File: write("binary", "hunter2\xff")}, `secret "K": has a value that is not UTF-8`},
		"large":       {Secret{Name: "K", File: write("large", strings.Repeat("hunter2", 50_000))}, `secret "K": takes more than 131072 bytes with its value`},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			r := newFakeRunner(t, fake)
			req := command("true")
			req.Secrets = []Secret{c.secret}
			_, err := r.Run(t.Context(), req)
			require.EqualError(t, err, c.want)
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.NotContains(t, field.Hint+err.Error(), "hunter2")
			require.Empty(t, fake.Created)
			require.Empty(t, leftBehind(t, r, fake))
		})
	}
}
