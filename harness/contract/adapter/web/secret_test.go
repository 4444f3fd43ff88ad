package web

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(file, []byte("hunter2\r\n"), 0o600))
	big := filepath.Join(dir, "big")
	require.NoError(t, os.WriteFile(big, []byte(strings.Repeat("x", maxSecret+10)), 0o600))
	t.Setenv("ADP_002_TOKEN", "hunter1")
	env := map[string]string{"EMPTY": "", "SHORT": "abc", "LINES": "hunter2\nx", "SPACE": " hunter2"}
	lookUp := func(name string) (string, bool) { value, found := env[name]; return value, found }

	read := func(ref SecretRef, lookUp func(string) (string, bool)) (credentials, error) {
		var hide redactor
		return Request{API: API{AuthMethod: AuthBearer, Auth: Auth{Token: ref}}, AdapterID: "ADP-002", LookupEnv: lookUp}.credentials(&hide)
	}
	have, err := read(SecretRef{}, nil)
	require.NoError(t, err)
	require.Equal(t, "Bearer hunter1", have.value)
	have, err = read(SecretRef{File: file}, nil)
	require.NoError(t, err)
	require.Equal(t, "Bearer hunter2", have.value)

	for want, ref := range map[string]SecretRef{
		"auth.token: the variable ADP_002_TOKEN is not set":         {},
		"auth.token: the variable EMPTY is empty":                   {Env: "EMPTY"},
		"auth.token: the variable SHORT must have 4 to 16384 bytes": {Env: "SHORT"},
		"auth.token: the variable LINES must be one line":           {Env: "LINES"},
		"auth.token: the variable SPACE must be one line":           {Env: "SPACE"},
		"/none\" cannot be read: no such file or directory":         {File: filepath.Join(dir, "none")},
		"/big\" cannot be read: has more than 16386 bytes":          {File: big},
		"cannot be read: is not a regular file (a directory)":       {File: dir},
	} {
		_, err := read(ref, lookUp)
		var wrong *SecretError
		require.ErrorAs(t, err, &wrong)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter")
	}
}
