package gate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/judge"
	"github.com/evalbox/evalbox/internal/fsx"
)

// Judge derives the verdict of a gate directory from its files and changes nothing (RT-14). The
// directory may come from another machine. Missing and changed files are a part of the verdict.
// An error means that the directory could not be read.
func Judge(ctx context.Context, dir string) (evidence.Verdict, error) {
	root, err := openExisting(dir)
	if err != nil {
		return evidence.Verdict{}, err
	}
	defer root.Close()
	in, err := loaded(ctx, root)
	if err != nil {
		return evidence.Verdict{}, err
	}
	return judge.Judge(in), nil
}

// loaded hashes and reads the evidence of a gate directory.
func loaded(ctx context.Context, root *os.Root) (judge.Input, error) {
	check, err := evidence.CheckFiles(ctx, root)
	if err != nil {
		return judge.Input{}, err
	}
	return judge.Load(ctx, root, check)
}

// VerifyOptions are further checks of a gate directory.
type VerifyOptions struct {
	// Attestation, if set, checks the signed statement of the directory. Its error is a problem
	// of the directory.
	Attestation func(ctx context.Context, root *os.Root) error
}

// VerifyReport is the result of a check.
type VerifyReport struct {
	Schema string `json:"schema"`
	// OK says that every file has its hash, and that the verdict and GATES.json follow from the
	// files. It does not say that the gate passed: Verdict.Status does.
	OK bool `json:"ok"`
	// Problems are the reasons why OK is false.
	Problems []Problem `json:"problems"`
	// Verdict follows from the files as they are now.
	Verdict evidence.Verdict `json:"verdict"`
	// Attested says that the signed statement was checked and is valid.
	Attested bool `json:"attested"`
	// Unsigned says that a signed statement was to be checked, and there is none.
	Unsigned bool `json:"unsigned"`
}

// VerificationV1 names the wire form of [VerifyReport].
const VerificationV1 = "evalbox/gate-verification/v1"

// Problem is one thing wrong with a gate directory.
type Problem struct {
	File   string `json:"file"`
	Detail string `json:"detail"`
}

// Verify checks a gate directory against its own hashes, finds entries that are not of a gate, judges it again, and compares verdict
// and GATES.json byte for byte. It hashes each file once, and neither changes nor runs anything. An
// error means that the directory could not be read.
func Verify(ctx context.Context, dir string, o VerifyOptions) (VerifyReport, error) {
	root, err := openExisting(dir)
	if err != nil {
		return VerifyReport{}, err
	}
	defer root.Close()
	check, err := evidence.CheckFiles(ctx, root)
	if err != nil {
		return VerifyReport{}, err
	}
	in, err := judge.Load(ctx, root, check)
	if err != nil {
		return VerifyReport{}, err
	}
	// The judge reports files that a stopped run never wrote. This check is about those that
	// the manifest lists.
	report := VerifyReport{Schema: VerificationV1, Problems: unfit(check), Verdict: judge.Judge(in)}
	add := func(file, detail string) { report.Problems = append(report.Problems, Problem{file, detail}) }
	more, err := extraEntries(ctx, root)
	if err != nil {
		return VerifyReport{}, err
	}
	report.Problems = append(report.Problems, more...)
	for name, want := range map[string]any{evidence.VerdictFile: report.Verdict, evidence.GatesFile: judge.Gates(in)} {
		if err := same(root, name, want); err != nil {
			add(name, err.Error())
		}
	}
	if o.Attestation != nil {
		err := o.Attestation(ctx, root)
		report.Attested = err == nil
		report.Unsigned = errors.Is(err, fs.ErrNotExist)
		switch {
		case report.Unsigned:
			add(evidence.AttestationFile, "is missing: it was not signed")
		case err != nil:
			add(evidence.AttestationFile, err.Error())
		}
	}
	follows := func(p Problem) int { // a cause stands before its consequences
		if p.Detail == errDiffers.Error() {
			return 1
		}
		return 0
	}
	slices.SortFunc(report.Problems, func(a, b Problem) int {
		return cmp.Or(follows(a)-follows(b), cmp.Compare(a.File, b.File), cmp.Compare(a.Detail, b.Detail))
	})
	report.OK = len(report.Problems) == 0
	return report, context.Cause(ctx)
}

// unfit lists the files that are not as their manifest says.
func unfit(check evidence.CheckReport) []Problem {
	problems := []Problem{}
	for _, name := range check.Missing {
		problems = append(problems, Problem{name, "is missing"})
	}
	for _, f := range check.Findings {
		detail := strings.TrimPrefix(f.Detail, fmt.Sprintf("%q ", f.Subject)) // the subject stands before it
		problems = append(problems, Problem{f.Subject, strings.TrimSuffix(strings.TrimPrefix(detail, f.Subject+" "), ".")})
	}
	return problems
}

// maxStrangers bounds the entries of a gate directory that are reported as not of a gate.
const maxStrangers = 100

// extraEntries lists the entries beside the files of a gate. A reader would take them for files
// that were checked: the manifest lists what lies in evidence/, and no more.
func extraEntries(ctx context.Context, root *os.Root) ([]Problem, error) {
	var problems []Problem
	more := 0
	err := fsx.ReadDir(ctx, root, ".", func(name string) error {
		switch {
		case name == evidence.IgnoreFile && !isOurIgnore(root):
			problems = append(problems, Problem{name, "is not the file that a gate writes"})
		case slices.Contains(topNames, name):
		case len(problems) < maxStrangers:
			problems = append(problems, Problem{name, "is not of a gate: its content was not checked"})
		default:
			more++
		}
		return nil
	})
	if more > 0 {
		problems = append(problems, Problem{".", fmt.Sprintf("has %d further entries that are not of a gate", more)})
	}
	return problems, err
}

// errDiffers is a document that does not follow from the evidence.
var errDiffers = errors.New("is not what follows from the evidence")

// same compares a document with the derived one.
func same(root *os.Root, name string, want any) error {
	text, err := evidence.ReadText(root, name, evidence.MaxDocument)
	var file *evidence.FileError
	switch {
	case errors.As(err, &file):
		return errors.New(file.Rule) // the name stands before it
	case err != nil:
		return fsx.Cause(err)
	}
	canonical, err := evidence.Canonical(want)
	if err != nil {
		return err
	}
	if !bytes.Equal(text, canonical) {
		return errDiffers
	}
	return nil
}
