package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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

// The first rule that is broken is the error: wrong usage, with the help of the command as its hint.
func TestCheck(t *testing.T) {
	rules := []Rule{
		Required("a"), NotEmpty(Directory, "a"), Together("b", "c"), Apart("b", "d"), Needs("b", "e"),
		func(cmd *cobra.Command) error { return Wrong(cmd.Flags().Changed("f"), "--f %d", 1)(cmd) },
	}
	for args, want := range map[string]string{
		"":                      "cmd: --a is missing",
		"--a=":                  "cmd: --a is empty: give a directory, or leave it out",
		"--a=1":                 "",
		"--a=1 --b=1":           "cmd: --b and --c go together",
		"--a=1 --b=1 --c=":      "",
		"--a=1 --b= --c= --d=1": "cmd: --b and --d do not go together",
		"--a=1 --e=1":           "cmd: --e needs --b",
		"--a=1 --f=1":           "cmd: --f 1",
	} {
		cmd := &cobra.Command{Use: "cmd"}
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			cmd.Flags().String(name, "", "")
		}
		require.NoError(t, cmd.ParseFlags(strings.Fields(args)))
		err := Check(cmd, rules...)
		if want == "" {
			require.NoError(t, err, args)
			continue
		}
		require.EqualError(t, err, want)
		require.Equal(t, ExitUsage, ExitCode(nil, err))
		require.Equal(t, []string{"run 'cmd --help'"}, new(App).Hints(err))
	}
}

func TestListAndOptional(t *testing.T) {
	var all []int
	list := List(&all, "N,N...", Each(strconv.Atoi))
	require.NoError(t, list.Set("1, 2"))
	require.NoError(t, list.Set("3"))
	require.Error(t, list.Set("4,x"))
	require.Equal(t, []int{1, 2, 3}, all)
	var one *string
	optional := Optional(&one, "string", Text)
	require.Empty(t, optional.String())
	require.NoError(t, optional.Set("x"))
	require.Equal(t, "x", optional.String())
	require.Equal(t, "x", *one)
}
