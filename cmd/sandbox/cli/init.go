package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// NewInit returns the command `init`, whose commands make something to start from. Nil is left out.
func NewInit(makers ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make something to start from",
		Long:  "Make something to start from. Each kind has its own command.",
		RunE:  UnknownOrHelp,
	}
	for _, maker := range makers {
		if maker != nil {
			cmd.AddCommand(maker)
		}
	}
	return cmd
}

// Maker returns the command new of parent as one of `init`, under another name; nil if parent has
// none. The parent must not be used otherwise.
func Maker(parent *cobra.Command, name string) *cobra.Command {
	const child = "new"
	for _, cmd := range parent.Commands() {
		if cmd.Name() != child {
			continue
		}
		cmd.Use = name + strings.TrimPrefix(cmd.Use, child)
		cmd.Example = strings.ReplaceAll(cmd.Example, parent.Name()+" "+child, "init "+name)
		parent.RemoveCommand(cmd)
		return cmd
	}
	return nil
}
