package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/settings"
)

func TestEnvFile(t *testing.T) {
	environ := []string{"OWN=mine", "OWNER=other"}
	tests := map[string]struct {
		text string
		want map[string]string
		err  string
	}{
		"pairs":            {text: "A=1\nB=2", want: map[string]string{"A": "1", "B": "2"}},
		"last one wins":    {text: "A=1\nA=2\n", want: map[string]string{"A": "2"}},
		"comment":          {text: "# A=1\n  # B=2\n\nC=3 # kept\n", want: map[string]string{"C": "3 # kept"}},
		"nothing unquoted": {text: `A="x $B"`, want: map[string]string{"A": `"x $B"`}},
		"equals sign":      {text: "A=b=c", want: map[string]string{"A": "b=c"}},
		"caller's own":     {text: "OWN\nABSENT\n", want: map[string]string{"OWN": "mine"}},
		"empty":            {text: "A=", want: map[string]string{"A": ""}},
		"indented":         {text: " \tA=1", want: map[string]string{"A": "1"}},
		"Windows":          {text: "\ufeffA=1\r\nB=2\r\n", want: map[string]string{"A": "1", "B": "2"}},
		"space in name":    {text: "A=1\nB C=2", err: `line 2: variable "B C": must be NAME=VALUE or NAME`},
		"no name":          {text: "=1", err: `line 1: variable "": must be NAME=VALUE or NAME`},
		"not text":         {text: "A=1\n\nB=\xff", err: "line 3 is not UTF-8 text"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			err := parseEnvFile([]byte(test.text), environ, got)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
	_, err := (&EnvFlags{Files: []string{"/no/such/file"}}).Read(&App{})
	require.EqualError(t, err, "env-file /no/such/file: no such file or directory")
}

// A flag that cannot be read is wrong usage; a value that is refused is refused.
func TestFlagProblems(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for text, want := range map[string]int{"lots": ExitUsage, "-1g": ExitSandbox} {
		a := &App{ConfigFile: empty, Given: settings.Flags{"memory": {Text: text, Name: "--memory"}}}
		_, err := a.Settings()
		require.ErrorContains(t, err, `--memory "`+text+`": must be`)
		require.Equal(t, want, ExitCode(nil, err))
	}
}
