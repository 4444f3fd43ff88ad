package gate

import (
	"errors"
	"os"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/internal/fsx"
)

const (
	// summaryGitHub stands for the file that GitHub names in githubSummary, where each
	// step of a job appends its part.
	summaryGitHub = "github"
	githubSummary = "GITHUB_STEP_SUMMARY"
)

// writeReports writes the reports of --junit and --summary.
func (f *gateFlags) writeReports(a *cli.App, r gate.Report) error {
	in := report.Input{Manifest: r.Manifest, Tests: r.Tests, Verdict: r.Verdict}
	var errs []error
	if f.junit != "" {
		text, err := report.JUnit(in)
		if err == nil {
			err = writeReport(f.junit, text)
		}
		errs = append(errs, err)
	}
	switch f.summary {
	case "":
	case "-":
		_, err := a.Out.Write(report.Markdown(in))
		errs = append(errs, cli.ReaderGone(err))
	case summaryGitHub:
		errs = append(errs, appendTo(a.Getenv(githubSummary), report.Markdown(in)))
	default:
		errs = append(errs, writeReport(f.summary, report.Markdown(in)))
	}
	return errors.Join(errs...)
}

// writeReport writes a file whole or not at all.
func writeReport(file string, text []byte) error {
	if err := fsx.WriteFile(file, text, 0o644, false); err != nil {
		return cli.OutputError(file, err)
	}
	return nil
}

func appendTo(file string, text []byte) error {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return cli.OutputError(file, err)
	}
	_, err = out.Write(text)
	if err = errors.Join(err, out.Close()); err != nil {
		return cli.OutputError(file, err)
	}
	return nil
}
