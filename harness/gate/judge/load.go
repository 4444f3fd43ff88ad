package judge

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Load reads what a verdict needs from a gate directory, which may come from anywhere.
// The run manifest must be what follows from the sealed wish, and what the evidence says
// of each gate what the raw results say: files that contradict each other were tampered
// with, also if their hashes fit.
//
// Files that are missing or are no such document are told in the input's Check and speak
// against a pass; an error is one of the machine or of ctx only.
func Load(ctx context.Context, root *os.Root) (Input, error) {
	var in Input
	var err error
	if in.Check, err = evidence.CheckFiles(ctx, root); err != nil {
		return Input{}, err
	}
	var findings evidence.Findings
	for _, file := range []struct {
		name string
		into any
	}{
		{evidence.RunManifestFile, &in.Manifest},
		{evidence.PlanFile, &in.Plan},
		{evidence.TestsFile, &in.Tests},
		{evidence.ObservationsFile, &in.Observations},
		{evidence.NormalizationFile, &in.Normalization},
		{evidence.EnvSnapshotFile, &in.Env},
		{evidence.ArtifactsFile, &in.Artifacts},
		{evidence.FindingsFile, &findings},
	} {
		if err := in.took(file.name, evidence.Read(root, file.name, evidence.MaxDocument, file.into)); err != nil {
			return Input{}, err
		}
	}
	in.Pre, in.Differences = findings.Pre, findings.Differences
	hash, err := evidence.ReadText(root, evidence.BehaviorHashFile, maxHashFile)
	if err := in.took(evidence.BehaviorHashFile, err); err != nil {
		return Input{}, err
	}
	in.BehaviorHash = strings.TrimSuffix(string(hash), "\n")
	if err := in.checkLock(root); err != nil {
		return Input{}, err
	}
	if err := in.checkRaw(ctx, root); err != nil {
		return Input{}, err
	}
	slices.Sort(in.Check.Missing)
	return in, nil
}

// maxHashFile bounds a file with one hash, in bytes.
const maxHashFile = 1 << 10

// took takes what is wrong with a file into the check, and returns an error of the
// machine.
func (in *Input) took(name string, err error) error {
	var file *evidence.FileError
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		if !slices.Contains(in.Check.Missing, name) {
			in.Check.Missing = append(in.Check.Missing, name)
		}
	case errors.As(err, &file):
		in.Check.Findings = append(in.Check.Findings, evidence.Finding{Reason: evidence.ReasonIncomplete, Subject: name, Detail: file.Error() + "."})
	default:
		return err
	}
	return nil
}
