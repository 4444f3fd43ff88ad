package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// finalOf is the directory of the outputs of a run, by the name that the caller gave it.
func finalOf(store *record.Store, asked, id string) string {
	each, err := store.Get(id)
	if err != nil {
		return asked // the record is gone
	}
	if dir := each.OutputDir(); dir != each.Spec.Job.Final || asked == "" {
		return dir
	}
	return asked
}

// replacedBy is the run that has filled the ./final of another run since; empty if no run has.
func replacedBy(store *record.Store, each record.Record) string {
	final := each.Spec.Job.Final
	if last, _ := stage.FilledLast(store, final); each.OutputDir() == final && last != each.ID {
		return last
	}
	return ""
}

// nowIn looks at the outputs of a run, without reading them.
func nowIn(store *record.Store, each record.Record) render.Final {
	final := render.Final{Dir: each.OutputDir(), Replaced: replacedBy(store, each), Lost: map[string]string{}}
	if each.Result == nil && !fsx.IsRealDir(final.Dir) {
		final.Dir = "" // it has none yet
	}
	if each.Result == nil || final.Replaced != "" {
		return final
	}
	root, openErr := fsx.OpenRoot(final.Dir)
	if openErr == nil {
		defer root.Close()
	}
	for _, out := range each.Result.Outputs {
		err := openErr
		var info fs.FileInfo
		if err == nil {
			info, err = fsx.LstatBelow(root, nameOf(out))
		}
		switch {
		case isGone(err):
			final.Lost[out.Path] = "not there any more"
		case err == nil && (!info.Mode().IsRegular() || info.Size() != out.SizeBytes):
			final.Lost[out.Path] = "changed since the run ended"
		}
	}
	return final
}

// isGone reports whether an error says that a path does not exist, because nothing has its name or
// because something on the way is not a directory. Any other error means only that the path cannot
// be read.
func isGone(err error) bool {
	var other *fsx.NotDirectoryError
	return errors.Is(err, fs.ErrNotExist) || errors.As(err, &other)
}

// replacedError says that the outputs of a run were replaced.
func replacedError(store *record.Store, each record.Record, by, path, dest string) error {
	err := fmt.Errorf("run %s: its outputs in %s were replaced by run %s", each.ID, text.Quote(each.Spec.Job.Final, 200), by)
	next, getErr := store.Get(by)
	if getErr != nil {
		return cli.WithHint(err, "a run without --final keeps its outputs in its record")
	}
	if path == "." {
		path = ""
	}
	if path != "" && !hasOutput(next, path) {
		return cli.WithHint(err, fmt.Sprintf("that run has no %s; see its outputs with: sandbox show %s", text.Quote(path, 200), by))
	}
	return cli.WithHint(err, fmt.Sprintf("copy the outputs of that run with: sandbox cp %s:%s %s", by, path, dest))
}

// hasOutput reports whether a path was an output of a run, or has outputs below it.
func hasOutput(each record.Record, path string) bool {
	return each.Result != nil && slices.ContainsFunc(each.Result.Outputs, func(out result.Output) bool {
		name := nameOf(out)
		return path == "." || name == path || strings.HasPrefix(name, path+"/")
	})
}

// notThere is an error for a path that ./final does not have, or not yet.
func notThere(each record.Record, dir, path string, err error) error {
	if each.State == record.Running || each.State == record.Lost {
		err = fmt.Errorf("run %s: %q in ./final: %w", each.ID, path, fsx.Cause(err))
		return cli.WithHint(err, "the run has not finished: wait for it with: sandbox wait "+each.ID)
	}
	if isGone(err) && hasOutput(each, path) {
		err = fmt.Errorf("run %s: %q is not in %s any more: it was deleted or moved after the run", each.ID, path, text.Quote(dir, 200))
		return cli.WithHint(err, "put it back there, or run the program again")
	}
	err = fmt.Errorf("run %s: %q in ./final: %w", each.ID, path, fsx.Cause(err))
	return cli.WithHint(err, "see the outputs with: sandbox show "+each.ID)
}
