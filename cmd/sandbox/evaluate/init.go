package evaluate

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
)

//go:embed template
var template embed.FS

// NewInitTask returns the command `init task`.
func NewInitTask(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "task [DIR]",
		Short: "Make a task to start from",
		Long: `Make a task to start from in DIR, which is made if it is missing (default: the
current directory): a task file with comments, data, answers, a grader and a solution.
It can be evaluated at once. No file is replaced.`,
		Example: "  sandbox init task my-task\n  sandbox evaluate my-task/solution.py --task my-task/task.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return initTask(cmd.Context(), a, dir)
		},
	}
}

func initTask(_ context.Context, a *cli.App, dir string) error {
	files, err := fs.Sub(template, "template")
	if err != nil {
		return err
	}
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if _, err := os.Lstat(path); err == nil {
			return &evaluate.FileError{Path: path, Rule: "exists, and is not replaced: name another directory"}
		}
		return nil
	})
	if err == nil {
		err = os.CopyFS(dir, files)
	}
	if err != nil {
		return cli.WithHint(err, "make the task in a new directory: sandbox init task DIR")
	}
	task, err := evaluate.LoadTask(filepath.Join(dir, "task.yaml"))
	if err != nil {
		return errors.Join(errors.New("the new task is wrong"), err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	a.Say("%s", fmt.Sprintf("made the task %s in %s", task.CompetitionID, dir))
	return a.Print("sandbox evaluate %s --task %s --grader %s --answers %s --sample %s\n",
		at("solution.py"), at("task.yaml"), at("grader.py"), at("answers"), at("input/sample_submission.csv"))
}
