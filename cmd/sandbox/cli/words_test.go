package cli

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestArgumentNames(t *testing.T) {
	for use, want := range map[string][]string{
		"ls":                             nil,
		"show [RUN]":                     {"[RUN]"},
		"logs [flags] RUN":               {"RUN"},
		"rm RUN...":                      {"RUN..."},
		"export NAME FILE|-":             {"NAME", "FILE|-"},
		"seal WISH.yaml [-o lock.json]":  {"WISH.yaml"},
		"evaluate SCRIPT.py --task TASK": {"SCRIPT.py"},
		"exec -f CONTRACT.yaml":          nil,
		"adopt RUN | --all":              {"RUN"},
		"run ID [OPERATION] [--param NAME=VALUE]... [-- ARGUMENT...]": {"ID", "[OPERATION]"},
	} {
		require.Equal(t, want, argumentNames(&cobra.Command{Use: use}), use)
	}
}
