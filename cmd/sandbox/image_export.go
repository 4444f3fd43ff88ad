package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/images/archive"
)

func newImageExportCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "export NAME FILE|-",
		Short: "Write a locked image to a file, for 'sandbox image import'",
		Long: `Write a locked image, together with its lock entry, as one tar archive to a file or,
for -, to stdout. 'docker load' understands it too. An image that is not the locked
one is refused.`,
		Example: "  sandbox image export debian debian.tar\n  sandbox image export debian - | ssh HOST sandbox image import -",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "-" && a.outTerminal {
				return usagef(cmd.CommandPath(), "image export: stdout is a terminal: name a file, or pipe it on")
			}
			return a.exportImage(cmd.Context(), args[0], args[1])
		},
	}
}

func (a *app) exportImage(ctx context.Context, name, file string) error {
	s, catalog, api, err := a.imageTools(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	path, err := a.lockToWrite(s)
	if err != nil {
		return err
	}
	lock, _, err := a.lock(s)
	if err != nil {
		return err
	}
	lock.Source = path
	write := func(w io.Writer) error { return archive.Export(ctx, api, catalog, lock, name, w) }
	if file == "-" {
		return readerGone(write(a.streams.Out))
	}
	if err := writeWhole(file, write); err != nil {
		return err
	}
	fmt.Fprintf(a.streams.Err, "image %s is in %s\n", name, file)
	return nil
}

// writeWhole makes a file of what write writes, and none when that fails: half an
// archive must not be taken for one.
func writeWhole(file string, write func(io.Writer) error) (err error) {
	if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return &fileError{fileArchive, file, errors.New("is there and is not a regular file")}
	}
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".partial-*")
	if err != nil {
		return &fileError{fileArchive, file, err}
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part.Name()) // the first error is the one to report
		}
	}()
	buffered := bufio.NewWriterSize(part, 1<<20)
	err = write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	err = errors.Join(err, part.Close())
	if err == nil {
		err = os.Rename(part.Name(), file)
	}
	if pathErr := new(os.PathError); errors.As(err, &pathErr) {
		return &fileError{fileArchive, file, pathErr}
	}
	return err
}
