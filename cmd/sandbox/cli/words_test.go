package cli

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestArgumentsOf(t *testing.T) {
	for use, want := range map[string][]string{
		"ls":                             nil,
		"show ID":                        {"ID"},
		"logs [flags] ID":                {"ID"},
		"rm ID...":                       {"ID..."},
		"lock [NAME...]":                 {"[NAME...]"},
		"export NAME FILE|-":             {"NAME", "FILE|-"},
		"seal WISH.yaml [-o lock.json]":  {"WISH.yaml"},
		"evaluate SCRIPT.py --task TASK": {"SCRIPT.py"},
		"exec -f CONTRACT.yaml":          nil,
		"run ID [OPERATION] [--param NAME=VALUE]... [-- ARGUMENT...]": {"ID", "[OPERATION]"},
	} {
		require.Equal(t, want, argumentsOf(&cobra.Command{Use: use}), use)
	}
}
