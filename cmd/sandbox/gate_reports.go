package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/report"
)

const (
	// summaryGitHub stands for the file that GitHub names in githubSummary, where each
	// step of a job appends its part.
	summaryGitHub = "github"
	githubSummary = "GITHUB_STEP_SUMMARY"
)

// checkReports makes sure that reports have a folder, before anything runs.
func (f *gateFlags) checkReports() error {
	for _, file := range []string{f.junit, f.summary} {
		if file == "" || file == "-" || file == summaryGitHub {
			continue
		}
		info, err := os.Stat(filepath.Dir(file))
		if err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			return &fileError{fileOutput, file, err}
		}
	}
	return nil
}

// writeReports writes what --junit and --summary ask for.
func (f *gateFlags) writeReports(a *app, r gate.Report) error {
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
		_, err := a.streams.Out.Write(report.Markdown(in))
		errs = append(errs, readerGone(err))
	case summaryGitHub:
		errs = append(errs, appendTo(lookup(a.environ, githubSummary), report.Markdown(in)))
	default:
		errs = append(errs, writeReport(f.summary, report.Markdown(in)))
	}
	return errors.Join(errs...)
}

// writeReport writes a file whole or not at all.
func writeReport(file string, text []byte) (err error) {
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return &fileError{fileOutput, file, err}
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := evidence.WriteText(root, filepath.Base(file), text); err != nil {
		return &fileError{fileOutput, file, err}
	}
	return nil
}

func appendTo(file string, text []byte) (err error) {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return &fileError{fileOutput, file, err}
	}
	_, err = out.Write(text)
	if err = errors.Join(err, out.Close()); err != nil {
		return &fileError{fileOutput, file, err}
	}
	return nil
}
