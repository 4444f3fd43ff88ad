// Package report has the command `report`.
package report

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/report"
	"github.com/evalbox/evalbox/internal/settings"
)

// Formats of a report, and the ends of file names that stand for them.
const (
	formatHTML     = "html"
	formatMarkdown = "md"
	formatCSV      = "csv"
)

var extensions = map[string]string{".html": formatHTML, ".htm": formatHTML, ".md": formatMarkdown, ".markdown": formatMarkdown, ".csv": formatCSV}

type flags struct{ output, format string }

// New returns the command `report`.
func New(a *cli.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "report PATH|RUN [PATH] [-o FILE]",
		Short: "Write a report on a batch, a sweep, a gate or a run",
		Long: `Write a report for people on what is at PATH: the results file of a batch, a
directory with results.jsonl, the directory of a sweep, or a gate directory.
Anything else is the handle of a run, as for 'sandbox show'. The results files
of two batches are put side by side.

The end of the file's name is the format: .html, .md or .csv. HTML is one file
with everything in it; it needs no network and can be sent to somebody else.
Markdown has no plots. CSV is one table, with every row. Without -o the report
goes to stdout, as Markdown unless --format says otherwise. A file that exists
is replaced at once and as a whole; after an error it is as it was.

Times, memory, outputs and metrics of a batch are those of the records of its
runs. They are missing where a record was deleted.`,
		Example: "  sandbox report results.jsonl -o report.html\n  sandbox report before.jsonl after.jsonl -o compared.html\n  sandbox report last\n  sandbox report out --format csv",
		Args:    cobra.RangeArgs(1, 2),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			_, known := extensions[strings.ToLower(filepath.Ext(f.output))]
			return cli.Check(cmd,
				cli.Wrong(f.format != "" && !slices.Contains([]string{formatHTML, formatMarkdown, formatCSV}, f.format), "--format %q: must be html, md or csv", f.format),
				cli.Wrong(f.format == "" && f.toFile() && !known, "--output %q: must end with .html, .md or .csv, or give --format", f.output),
				cli.Wrong(f.toFile() && slices.ContainsFunc(args, func(arg string) bool { return same(arg, f.output) }), "--output %q: is what the report is about", f.output))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			document, err := load(ctx, a, s, args)
			if err != nil {
				return err
			}
			return f.write(a, document)
		}),
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "`file` of the report: .html, .md or .csv (default: stdout)")
	cmd.Flags().StringVar(&f.format, "format", "", "`html`, md or csv")
	cli.Choices(cmd, "format", "html\tone file with plots, for a browser", "md\tMarkdown", "csv\tone table")
	return cli.TakesHandles(cmd)
}

// toFile reports whether the report goes to a file.
func (f flags) toFile() bool { return f.output != "" && f.output != "-" }

// same reports whether two paths are one file.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// write writes the report in its format.
func (f flags) write(a *cli.App, d report.Document) error {
	var text []byte
	switch cmp.Or(f.format, extensions[strings.ToLower(filepath.Ext(f.output))], formatMarkdown) {
	case formatHTML:
		text = d.HTML()
	case formatCSV:
		text = d.CSV()
	default:
		text = d.Markdown()
	}
	if !f.toFile() {
		_, err := a.Out.Write(text)
		return cli.ReaderGone(err)
	}
	if err := fsx.WriteFile(f.output, text, 0o644, false); err != nil {
		return cli.OutputError(f.output, err)
	}
	return nil
}

// load makes the document of what the arguments name.
func load(ctx context.Context, a *cli.App, s settings.Settings, args []string) (report.Document, error) {
	l := loader{ctx, a, s}
	if len(args) == 1 {
		return l.document(args[0])
	}
	batches := make([]report.Batch, len(args))
	for i, path := range args {
		if k, _ := kindOf(path); k != kindBatch {
			return report.Document{}, cli.UsageHint("name two results files, as in: sandbox report before.jsonl after.jsonl -o compared.html",
				"report: %q is not the results file of a batch, and only two batches can be compared", path)
		}
		var err error
		if batches[i], err = l.batch(path); err != nil {
			return report.Document{}, err
		}
		batches[i].Title = path
	}
	if batches[0].Title == batches[1].Title {
		return report.Document{}, cli.Usagef(a.Command, "report: %q is given twice", args[0])
	}
	batches[0].Title, batches[1].Title = titles(args[0], args[1])
	return report.CompareDocument(batches[0], batches[1]), nil
}

// titles are the names of two files, with the names of their directories if they are equal otherwise.
func titles(a, b string) (string, string) {
	if x, y := filepath.Base(a), filepath.Base(b); x != y {
		return x, y
	}
	short := func(path string) string { return filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)) }
	if x, y := short(a), short(b); x != y {
		return x, y
	}
	return fmt.Sprintf("%s (first)", filepath.Base(a)), fmt.Sprintf("%s (second)", filepath.Base(b))
}
