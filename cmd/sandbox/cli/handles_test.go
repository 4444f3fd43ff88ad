package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// A handle that counts back is not a flag, and the value of a flag is not a handle.
func TestRelativeArgs(t *testing.T) {
	root := &cobra.Command{Use: "sandbox"}
	root.PersistentFlags().String("state-dir", "", "")
	logs := TakesHandles(&cobra.Command{Use: "logs", Run: func(*cobra.Command, []string) {}})
	logs.Flags().BoolP("follow", "f", false, "")
	logs.Flags().StringP("tail", "n", "", "")
	root.AddCommand(logs, &cobra.Command{Use: "run", Run: func(*cobra.Command, []string) {}})
	for given, want := range map[string]string{
		"logs -1":                  "logs ~1",
		"logs -f -12 -3":           "logs -f ~12 ~3",
		"--state-dir x logs -2":    "--state-dir x logs ~2",
		"logs -n 5 -1":             "logs -n 5 ~1",
		"logs -n -1 -2":            "logs -n -1 ~2",
		"logs -fn -1":              "logs -fn -1",
		"logs --tail -1":           "logs --tail -1",
		"logs --tail=3 -1":         "logs --tail=3 ~1",
		"logs -1:a/b .":            "logs ~1:a/b .",
		"logs -- -1":               "logs -- -1",
		"logs -0 -x -1a":           "logs -0 -x -1a",
		"run -1":                   "run -1",
		"logs --state-dir -1 last": "logs --state-dir -1 last",
	} {
		require.Equal(t, strings.Fields(want), relativeArgs(root, strings.Fields(given)), given)
	}
}
