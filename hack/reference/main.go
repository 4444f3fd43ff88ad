// Command reference writes the man pages, and the reference pages of the documents, from the
// commands themselves.
//
//	go -C hack run ./reference man VERSION DIR
//	go -C hack run ./reference pages
//
// Paths are relative to hack. The man pages are compressed, and have the date of
// SOURCE_DATE_EPOCH.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/cmd/sandbox/root"
)

func main() { os.Exit(start()) }

func start() int {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		return 1
	}
	return 0
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "man":
		seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		return writeManPages(args[2], args[1], time.Unix(seconds, 0).UTC())
	case len(args) == 1 && args[0] == "pages":
		return writePages("..")
	}
	return errors.New("usage: reference man VERSION DIR | reference pages")
}

// tree returns the commands.
func tree() *cobra.Command { return root.New(cli.New(cli.Streams{})) }

// pages are the generated pages of the documents.
var pages = map[string]func(repository string) (string, error){
	"docs/commands.md": func(string) (string, error) { return commandsPage(tree()), nil },
	"docs/schemas.md":  schemasPage,
}

// writePages writes the pages of the documents.
func writePages(repository string) error {
	for name, page := range pages {
		text, err := page(repository)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(repository, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
