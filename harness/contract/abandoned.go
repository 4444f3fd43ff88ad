package contract

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// StatusAbandoned is an execution whose controller ended before the program did.
const StatusAbandoned = "abandoned"

// SettleAbandoned gives an outcome to every execution whose controller ended without
// one, so that somebody is told, and that its record is of a class of retention. It
// returns the runs that got one. What cannot be read or written is named in the error;
// the others get theirs all the same.
func SettleAbandoned(store *record.Store) (runs []string, err error) {
	records, err := store.List()
	errs := []error{err}
	for _, each := range records {
		if each.State != record.Lost {
			continue
		}
		if _, err := os.Lstat(filepath.Join(each.Dir, OutcomeFile)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		c, err := Load(filepath.Join(each.Dir, ContractFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue // no contract, or it did not come to the start
		}
		if err == nil {
			run := &execution{outcome: abandoned(each, c), record: each.Dir}
			err = run.writeOutcome()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("record %s: %w", each.ID, err))
			continue
		}
		runs = append(runs, each.ID)
	}
	return runs, errors.Join(errs...)
}

// abandoned is the outcome of a contract whose end nobody saw. The contract was written
// right before the start: the program may have run, and so it is told.
func abandoned(each record.Record, c Contract) *Outcome {
	job := each.Spec.Job
	o := &Outcome{
		Schema: OutcomeSchemaV1, ExecutionID: c.ExecutionID, ToolID: c.ToolID, AdapterID: c.AdapterID,
		ContractSHA256: job.Labels[labelHash], Started: true, Status: StatusAbandoned,
		Error:    "Whoever carried the contract out ended before the program did: how it ended is not known, and nothing was carried over",
		Metadata: c.Metadata,
		Evidence: Evidence{RunID: each.ID, Path: each.Dir, Retention: RetainSession},
	}
	files, network := c.Sandbox.Filesystem.Level, c.Sandbox.Network.Level
	if files == string(policy.Elevated) || network == string(policy.Open) || c.Metadata.EvidenceRef != "" {
		o.Evidence.Retention = RetainEvidence // it was approved, or somebody refers to it
	}
	run := &execution{contract: c, spec: each.Spec, resolved: Resolved{WorkDir: each.Spec.Class.WorkDir}, effective: Effective{
		Contract: c, Profile: c.Sandbox.Profile, FilesystemLevel: policy.FilesystemLevel(files), NetworkLevel: policy.NetworkLevel(network),
		AllowFork: c.Sandbox.Processes.AllowFork == nil || *c.Sandbox.Processes.AllowFork,
	}}
	for _, mount := range job.Mounts {
		run.resolved.Mounts = append(run.resolved.Mounts, sandbox.Mount(mount))
	}
	for _, tree := range job.Trees {
		run.resolved.Trees = append(run.resolved.Trees, sandbox.Tree{Source: tree.Source, Target: tree.Target})
		o.Folders = append(o.Folders, Folder{Source: tree.Source, Target: tree.Target,
			NotWritten: []string{"all changes: whoever was to carry them over ended; what is left of them is in the record"}})
	}
	o.Executed = run.executed()
	var checks checklist
	for _, p := range points {
		if p.list == "CK-01" {
			checks.set(p.point, CheckDone, "it was checked before the start")
		}
	}
	checks.set("evidence_captured", CheckDone, "run %s, kept as %s; what there is up to the end of its controller", each.ID, o.Evidence.Retention)
	o.Checklist = checks.list()
	o.normalize()
	return o
}
