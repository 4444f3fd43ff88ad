package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// left is what the program left, wherever it could write.
func (run *execution) left(res *result.Result) written {
	w := written{files: map[string]writtenFile{}, odd: map[string]string{}, gone: map[string]bool{}}
	for _, out := range res.Outputs {
		w.add(spec.FinalDir, run.final, out.Path, out.PathBase64, out.SizeBytes, out.SHA256)
	}
	w.skip(spec.FinalDir, res.OutputsSkipped)
	for _, tree := range res.Trees {
		for _, list := range [][]result.TreeEntry{tree.Created, tree.Changed} {
			for _, entry := range list {
				if entry.Kind == "file" {
					w.add(tree.Target, run.treeDir(tree.Target), entry.Path, entry.PathBase64, entry.SizeBytes, entry.SHA256)
				}
			}
		}
		for _, entry := range tree.Deleted {
			w.gone[path.Join(tree.Target, entry.Path)] = true
		}
		w.skip(tree.Target, tree.Skipped)
	}
	return w
}

func (w *written) add(target, dir, name, raw string, size int64, sum string) {
	file := writtenFile{size: size, sha256: sum}
	if dir != "" && raw == "" { // the name is that of the file
		file.kept = filepath.Join(dir, filepath.FromSlash(name))
	}
	w.files[path.Join(target, name)] = file
}

func (w *written) skip(target string, skipped []result.SkippedOutput) {
	for _, out := range skipped {
		w.odd[path.Join(target, out.Path)] = out.Kind + ": " + out.Reason
	}
}

// treeDir is where the record keeps what was changed in a tree.
func (run *execution) treeDir(target string) string {
	for i, tree := range run.spec.Job.Trees {
		if tree.Target == target && run.Store != nil {
			return run.Store.TreeDir(run.request.ID, i)
		}
	}
	return ""
}

// maxNotWritten bounds how many changes are named that did not reach the host.
const maxNotWritten = 100

// applying keeps executions of this process from writing at the same time.
var applying sync.Mutex

// apply carries over to the host what the program changed in its copies. That it failed
// is no reason not to: what a tool writes before it fails is what tells why. What is
// not seen to its end, or is more than the contract permits, stays in the record.
func (run *execution) apply(ctx context.Context, res *result.Result, tooLarge bool) carriedOver {
	o := run.outcome
	carried := carriedOver{applied: map[string]bool{}, reasons: map[string]string{}}
	why := ""
	switch {
	case run.Store == nil:
		why = "there is no record to take it from"
	case !o.Started:
		why = "the program did not run"
	case res.Status == result.StatusCanceled:
		why = "the execution was canceled"
	case res.Status == result.StatusEngineLost:
		why = "the end of the program was not seen"
	case tooLarge:
		why = "the output files are larger than the contract permits"
	}
	applying.Lock()
	defer applying.Unlock()
	for _, tree := range run.resolved.Trees {
		folder := Folder{Source: tree.Source, Target: tree.Target, NotWritten: []string{}}
		switch {
		case why == "":
			run.applyTree(context.WithoutCancel(ctx), &folder, carried)
		case changes(res, tree.Target) > 0:
			carried.reasons[tree.Target] = why
			folder.NotWritten = append(folder.NotWritten, fmt.Sprintf("%s: %s", text.Count(changes(res, tree.Target), "change"), why))
		}
		folder.skipped(res)
		if n := len(folder.NotWritten); n > 0 {
			o.Warnings = append(o.Warnings, fmt.Sprintf("%s: not everything that was changed reached the host: %s", tree.Source, folder.NotWritten[0]))
		}
		o.Folders = append(o.Folders, folder)
	}
	return carried
}

// carriedOver is what became of changes, by the path inside the container: what is on
// the host now, and why something is not. The reason of a tree is that of everything in
// it that has none of its own.
type carriedOver struct {
	applied map[string]bool
	reasons map[string]string
}

// missing are the files that the contract names and the program wrote, but that are not
// on the host: whoever goes on with what lies there has something else.
func (c carriedOver) missing(r Resolved, w written) (differences []Difference) {
	told := map[string]bool{}
	for i, want := range slices.Concat(r.outputs, r.artifacts) {
		file, ok := w.files[want.target]
		if !ok || want.source == "" || c.applied[want.target] || told[want.target] {
			continue
		}
		told[want.target] = true
		got := "it was not come to"
		for at := want.target; at != path.Dir(at); at = path.Dir(at) {
			if reason, ok := c.reasons[at]; ok {
				got = reason
				break
			}
		}
		if file.kept != "" {
			got += "; it is kept at " + file.kept
		}
		what := "output_file"
		if i >= len(r.outputs) {
			what = "artifact"
		}
		differences = append(differences, Difference{What: what, Path: want.path, Problem: "not_applied", Expected: "the file at " + want.source, Got: got})
	}
	return differences
}

// skipped adds what the program left that is neither a file nor a folder, or was not
// looked at.
func (f *Folder) skipped(res *result.Result) {
	for _, tree := range res.Trees {
		if tree.Target != f.Target {
			continue
		}
		for _, out := range tree.Skipped[:min(len(tree.Skipped), maxNotWritten)] {
			f.NotWritten = append(f.NotWritten, fmt.Sprintf("%s (%s): %s", out.Path, out.Kind, out.Reason))
		}
	}
}

// changes is the number of changes in a tree.
func changes(res *result.Result, target string) int {
	for _, tree := range res.Trees {
		if tree.Target == target {
			return len(tree.Created) + len(tree.Changed) + len(tree.Deleted)
		}
	}
	return 0
}

func (run *execution) applyTree(ctx context.Context, folder *Folder, carried carriedOver) {
	report, err := run.Runner.ApplyTree(ctx, run.request.ID, folder.Target,
		tree.ApplyOptions{Deny: run.deniedIn(folder.Source), Git: run.mayWriteGit(folder.Source)})
	if err != nil {
		folder.NotWritten = append(folder.NotWritten, err.Error())
		carried.reasons[folder.Target] = err.Error()
	}
	folder.Written = report.Count(tree.Applied)
	more := 0
	for _, change := range report.Changes {
		if at := path.Join(folder.Target, change.Path); change.State == tree.Applied {
			carried.applied[at] = true
		} else {
			carried.reasons[at] = change.Reason
		}
		switch {
		case change.State == tree.Applied:
		case len(folder.NotWritten) < maxNotWritten:
			folder.NotWritten = append(folder.NotWritten, fmt.Sprintf("%s (%s): %s", change.Path, change.Change, change.Reason))
		default:
			more++
		}
	}
	if more > 0 {
		folder.NotWritten = append(folder.NotWritten, fmt.Sprintf("and %d more", more))
	}
}

// mayWriteGit says whether what Git executes is carried over: at level elevated, and
// where the contract names it.
func (run *execution) mayWriteGit(source string) bool {
	return run.effective.FilesystemLevel == policy.Elevated ||
		slices.ContainsFunc(run.resolved.git, func(p string) bool { return fsx.Within(p, source) })
}

// deniedIn are the denied paths in a folder.
func (run *execution) deniedIn(source string) (denied []string) {
	for _, d := range run.resolved.denied {
		if d != source && fsx.Within(d, source) {
			denied = append(denied, d)
		}
	}
	return denied
}

// storeArtifacts copies into the record the artifacts that were there before: those
// that the program wrote are in it already.
func (run *execution) storeArtifacts(artifacts []Artifact) error {
	for i, artifact := range artifacts {
		kept := artifact.Metadata["kept_at"]
		if kept == "" || run.record == "" || fsx.Within(kept, run.record) {
			continue
		}
		dir := filepath.Join(run.record, "artifacts")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		artifact.Metadata["kept_at"] = filepath.Join(dir, strconv.Itoa(i))
		if err := copyFile(kept, artifact.Metadata["kept_at"], int64(run.effective.Artifacts)); err != nil {
			return fmt.Errorf("artifact %s: %w", quoted(artifact.Metadata["path"]), err)
		}
	}
	return nil
}

// copyFile copies at most so many bytes of a regular file into a new one.
func copyFile(from, to string, most int64) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, most))
	return errors.Join(err, out.Close())
}
