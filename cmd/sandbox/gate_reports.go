package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/attest"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/internal/fsx"
)

const (
	// summaryGitHub stands for the file that GitHub names in githubSummary, where each
	// step of a job appends its part.
	summaryGitHub = "github"
	githubSummary = "GITHUB_STEP_SUMMARY"
)

// checkReports makes sure, before anything runs, that the directories of reports exist and
// that reports are not a part of the workspace: the next run would find a file without a
// commit, and a replay other files than the recorded ones. A wish that is sealed on the
// spot leaves reports out; a sealed wish must exclude them itself.
func (f *gateFlags) checkReports(o *gate.Options) error {
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
		workspace, err := o.Lock.Wish.Workspace(o.WishDir)
		if err != nil || o.NotSealed != "" {
			continue // nothing runs, and the verdict says why
		}
		rel, inside := placeIn(file, workspace)
		switch {
		case !inside || excluded(rel, o.Lock.Wish.Exclude):
		case o.Sealed:
			return &hintedError{fmt.Errorf("output %s: lies in the workspace, which the next run and a replay would find changed", file),
				"write it outside of the workspace, or name it with exclude in the wish, and seal that again"}
		default:
			o.Lock.Wish.Exclude = append(slices.Clone(o.Lock.Wish.Exclude), rel)
		}
		if inside {
			o.Ignore = append(o.Ignore, placeFrom(o.WishDir, workspace, rel))
		}
	}
	return nil
}

// placeIn is the path of a file, which need not exist, below a directory.
func placeIn(file, folder string) (rel string, ok bool) {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		rel, err = filepath.Rel(folder, filepath.Join(dir, filepath.Base(file)))
	}
	return filepath.ToSlash(rel), err == nil && filepath.IsLocal(rel)
}

// placeFrom makes a path in the workspace relative to the directory of the wish.
func placeFrom(wishDir, workspace, rel string) string {
	if real, err := filepath.EvalSymlinks(wishDir); err == nil {
		wishDir = real
	}
	if from, err := filepath.Rel(wishDir, filepath.Join(workspace, rel)); err == nil {
		return from
	}
	return rel
}

// excluded says that the wish leaves a path out, or one of its directories.
func excluded(rel string, exclude []string) bool {
	return slices.ContainsFunc(exclude, func(name string) bool {
		return fsx.Within(rel, strings.TrimSuffix(name, "/"))
	})
}

// writeReports writes the reports of --junit and --summary.
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
func writeReport(file string, text []byte) error {
	err := fsx.InRoot(filepath.Dir(file), func(root *os.Root) error {
		return evidence.WriteText(root, filepath.Base(file), text)
	})
	if err != nil {
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

// key reads the private key of --sign; nil if there is none. It must lie where the gates
// cannot read it, and where no other user can replace it.
func (f *gateFlags) key(a *app, o gate.Options) ([]byte, error) {
	if f.sign == "" {
		return nil, nil
	}
	text, err := fsx.Read(f.sign, attest.MaxKey)
	if err != nil {
		return nil, &fileError{fileKey, f.sign, err}
	}
	if err := attest.CheckKey(text); err != nil {
		return nil, &fileError{fileKey, f.sign, err}
	}
	info, err := os.Stat(f.sign)
	if err != nil {
		return nil, &fileError{fileKey, f.sign, err}
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o022 != 0:
		return nil, &hintedError{fmt.Errorf("key %s: others may change it (mode %04o)", f.sign, mode), "make it its owner's alone with: chmod 600 " + shellWord(f.sign)}
	case mode&0o044 != 0:
		a.say(fmt.Sprintf("warning: key %s: others may read it (mode %04o); make it its owner's alone with: chmod 600 %s", f.sign, mode, shellWord(f.sign)))
	}
	place, err := filepath.Abs(f.sign)
	if err != nil {
		return nil, &fileError{fileKey, f.sign, err}
	}
	if workspace, err := o.Lock.Wish.Workspace(o.WishDir); err == nil && fsx.Within(fsx.RealPath(place), workspace) {
		return nil, &hintedError{fmt.Errorf("key %s: lies in the workspace, where the gates can read it", f.sign), "keep the key outside of the workspace"}
	}
	return text, nil
}

// signGate signs a finished gate directory.
func signGate(ctx context.Context, dir string, key []byte) error {
	err := fsx.InRoot(dir, func(root *os.Root) error { return attest.Sign(ctx, root, key) })
	if err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	return nil
}

// publicKey reads a public key, and makes a check of attestations of it.
func publicKey(file string) (func(ctx context.Context, root *os.Root) error, error) {
	text, err := fsx.Read(file, attest.MaxKey)
	if err != nil {
		return nil, &fileError{filePublicKey, file, err}
	}
	if err := attest.CheckPublicKey(text); err != nil {
		return nil, &fileError{filePublicKey, file, err}
	}
	return func(ctx context.Context, root *os.Root) error { return attest.Verify(ctx, root, text) }, nil
}
