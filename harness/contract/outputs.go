package contract

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// Classes of retention (CX-05): streams and exit codes are kept for the session, files and
// artifacts as evidence.
const (
	RetainSession  = "session"
	RetainEvidence = "evidence"
)

const (
	// maxListed bounds the lists of files that the contract does not name, and of changes
	// that did not reach the host.
	maxListed = 100
	// maxArtifactText bounds the text of an artifact in the outcome, in bytes.
	maxArtifactText = 64 << 10
)

// written is what the program left, by path in the container.
type written struct {
	files map[string]writtenFile
	// other are entries that are not regular files or were left out, with the reason.
	other   map[string]string
	deleted map[string]bool
}

// writtenFile is a regular file that the program created or changed.
type writtenFile struct {
	size   int64
	sha256 string
	// kept is its path on the host, and in a directory above it that no program can
	// replace; empty if its content was not kept.
	in, kept string
}

// written lists the files of ./final and the changes of the working copies.
func (run *execution) written(res *result.Result) written {
	w := written{files: map[string]writtenFile{}, other: map[string]string{}, deleted: map[string]bool{}}
	add := func(target, dir, name, raw string, size int64, sum string) {
		file := writtenFile{size: size, sha256: sum}
		if raw == "" { // the name is the one on disk
			file.in, file.kept = dir, filepath.Join(dir, filepath.FromSlash(name))
		}
		w.files[path.Join(target, name)] = file
	}
	skip := func(target string, skipped []result.SkippedOutput) {
		for _, out := range skipped {
			w.other[path.Join(target, out.Path)] = out.Kind + ": " + out.Reason
		}
	}
	unpublished, _ := run.box.Store().Unpublished(run.id)
	final := cmp.Or(unpublished, run.request.Final, filepath.Join(run.record, record.OwnFinal))
	for _, out := range res.Outputs {
		add(spec.FinalDir, final, out.Path, out.PathBase64, out.SizeBytes, out.SHA256)
	}
	skip(spec.FinalDir, res.OutputsSkipped)
	for _, changed := range res.Trees {
		i := slices.IndexFunc(run.spec.Job.Trees, func(t spec.JobTree) bool { return t.Target == changed.Target })
		for _, entry := range slices.Concat(changed.Created, changed.Changed) {
			if entry.Kind == "file" {
				add(changed.Target, run.box.Store().TreeDir(run.id, i), entry.Path, entry.PathBase64, entry.SizeBytes, entry.SHA256)
			}
		}
		for _, entry := range changed.Deleted {
			w.deleted[path.Join(changed.Target, entry.Path)] = true
		}
		skip(changed.Target, changed.Skipped)
	}
	return w
}

// judgement compares the files of a program with the contract.
type judgement struct {
	files       []OutputFile
	artifacts   []Artifact
	differences []Difference
	warnings    []string
	// tooLarge says that the output files exceed the limit of the contract.
	tooLarge bool

	total, room int64
}

// judgeOutputs compares the written files with the contract. Files that it does not name are
// listed, and are a difference if it names any.
func judgeOutputs(r Resolved, e Effective, w written) judgement {
	j := judgement{room: int64(e.OutputFiles)}
	named := map[string]bool{}
	for _, want := range r.outputs {
		if file, ok := j.find("output_file", want, w); ok && !named[want.target] {
			named[want.target] = true
			j.addFile(want.path, file, true)
		}
	}
	j.judgeArtifacts(r, e, w, named)
	declares, others := len(r.outputs)+len(r.artifacts) > 0, 0
	for _, target := range slices.Sorted(maps.Keys(w.files)) {
		if named[target] {
			continue
		}
		file, name := w.files[target], strings.TrimPrefix(target, spec.RepoDir+"/")
		j.addFile(name, file, false)
		if others++; declares && others <= maxListed {
			j.differ("output_file", name, extra, "no such file in the contract", fmt.Sprintf("%d bytes", file.size))
		}
	}
	if declares && others > maxListed {
		j.warnings = append(j.warnings, fmt.Sprintf("%d more files are not named in the contract; output_files lists them", others-maxListed))
	}
	slices.SortStableFunc(j.files, func(a, b OutputFile) int { return strings.Compare(a.Path, b.Path) })
	return j
}

func (j *judgement) differ(what, path, problem, expected, got string) {
	j.differences = append(j.differences, Difference{What: what, Path: path, Problem: problem, Expected: expected, Got: got})
}

// addFile lists a file and counts its size.
func (j *judgement) addFile(name string, file writtenFile, isDeclared bool) {
	j.files = append(j.files, OutputFile{File: trial.File{Path: name, Size: file.size, SHA256: file.sha256}, Declared: isDeclared, Retention: RetainEvidence})
	j.total += file.size
	if !j.tooLarge && j.total > j.room {
		j.tooLarge = true
		j.differ("output_file", name, tooLarge, fmt.Sprintf("at most %v in all output files", policy.Size(j.room)),
			fmt.Sprintf("%d bytes, with it %d in all", file.size, j.total))
	}
}

// find looks for a file that the contract names; a missing one is a difference.
func (j *judgement) find(what string, want declared, w written) (writtenFile, bool) {
	if file, ok := w.files[want.target]; ok {
		return file, true
	}
	if why, ok := w.other[want.target]; ok {
		j.differ(what, want.path, notAFile, "a regular file", why)
		return writtenFile{}, false
	}
	if !w.deleted[want.target] {
		if file, ok := j.unchanged(want); ok {
			return file, true
		}
	}
	j.differ(what, want.path, missing, "a regular file", "it was not written")
	return writtenFile{}, false
}

// unchanged is a file that was there before, with the same content. Whether the program wrote
// it again is unknown.
func (j *judgement) unchanged(want declared) (writtenFile, bool) {
	p, rule := lookUp(want.source)
	if rule != "" || p.real != want.source || !p.info.Mode().IsRegular() { // real is never empty
		return writtenFile{}, false
	}
	room := p.info.Size()
	file, rule := hashFile(p, &room)
	if rule != "" {
		return writtenFile{}, false
	}
	if warning := fmt.Sprintf("%s %s was there before with the same content", want.field, quoted(want.path)); !slices.Contains(j.warnings, warning) {
		j.warnings = append(j.warnings, warning)
	}
	return writtenFile{size: file.Size, sha256: file.SHA256, in: filepath.Dir(p.real), kept: p.real}, true
}

func (j *judgement) judgeArtifacts(r Resolved, e Effective, w written, named map[string]bool) {
	total := int64(0)
	for i, want := range r.artifacts {
		file, ok := j.find("artifact", want, w)
		if !ok {
			continue
		}
		named[want.target] = true
		if total += file.size; total > int64(e.Artifacts) {
			j.differ("artifact", want.path, tooLarge, fmt.Sprintf("at most %v in all artifacts", e.Artifacts),
				fmt.Sprintf("%d bytes, with it %d in all", file.size, total))
			continue
		}
		mime := e.Contract.Outputs.Artifacts[i].MIMEType
		j.artifacts = append(j.artifacts, Artifact{MIMEType: mime, Data: artifactText(mime, file), Metadata: map[string]string{
			"path": want.path, "size_bytes": strconv.FormatInt(file.size, 10), "sha256": file.sha256, "kept_at": file.kept,
			"retention": RetainEvidence,
		}})
	}
}

// artifactText is the text of a small text artifact.
func artifactText(mime string, file writtenFile) string {
	base, _, _ := strings.Cut(mime, ";")
	isText := strings.HasPrefix(base, "text/") || base == "application/json" || strings.HasSuffix(base, "+json") ||
		base == "application/xml" || strings.HasSuffix(base, "+xml") || base == "application/yaml"
	if !isText || file.kept == "" {
		return ""
	}
	var data []byte
	err := fsx.InRoot(file.in, func(root *os.Root) (err error) {
		name, err := filepath.Rel(file.in, file.kept)
		if err == nil {
			data, err = fsx.ReadIn(root, name, maxArtifactText)
		}
		return err
	})
	if err != nil || int64(len(data)) != file.size || !utf8.Valid(data) {
		return "" // the metadata says where the bytes are
	}
	return string(data)
}

// storeArtifacts copies artifacts that were there before into the record. Written ones are in
// it already.
func (run *execution) storeArtifacts(artifacts []Artifact) error {
	dir := filepath.Join(run.record, "artifacts")
	for i, artifact := range artifacts {
		kept := artifact.Metadata["kept_at"]
		if kept == "" || fsx.Within(kept, run.record) {
			continue
		}
		artifact.Metadata["kept_at"] = filepath.Join(dir, strconv.Itoa(i))
		if err := copyInto(dir, strconv.Itoa(i), kept, int64(run.Effective.Artifacts)); err != nil {
			return fmt.Errorf("artifact %s: %w", quoted(artifact.Metadata["path"]), err)
		}
	}
	return nil
}

// copyInto copies at most limit bytes of a regular file.
func copyInto(dir, name, from string, limit int64) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	in, err := fsx.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return fsx.InRoot(dir, func(root *os.Root) error {
		_, err := fsx.Create(root, name, io.LimitReader(in, limit), 0o600)
		return err
	})
}

// applying keeps executions of this process from writing to the host at the same time.
var applying sync.Mutex

// carriedOver says by path in the container why a change is not on the host; an empty reason is
// one that is. The reason of a working copy is that of all its files without one of their own.
type carriedOver map[string]string

// carryOver applies the changes of the working copies to the host, also if the program failed:
// its files often explain the failure. Nothing is applied if its end was not observed, or if
// the output files are too large.
func (run *execution) carryOver(ctx context.Context, res *result.Result, isTooLarge bool) carriedOver {
	carried, why := carriedOver{}, ""
	switch {
	case !run.outcome.Started:
		why = "the program did not run"
	case res.Status == result.StatusCanceled:
		why = "the execution was canceled"
	case res.Status == result.StatusEngineLost:
		why = "the end of the program was not seen"
	case !res.Conclusive():
		why = "the program did not end by itself, and is not to blame"
	case isTooLarge:
		why = "the output files are larger than the contract permits"
	}
	applying.Lock()
	defer applying.Unlock()
	for _, copied := range run.resolved.Trees {
		folder := Folder{Source: copied.Source, Target: copied.Target}
		var changed result.Tree
		if i := slices.IndexFunc(res.Trees, func(t result.Tree) bool { return t.Target == copied.Target }); i >= 0 {
			changed = res.Trees[i]
		}
		if n := len(changed.Created) + len(changed.Changed) + len(changed.Deleted); why != "" && n > 0 {
			carried[copied.Target] = why
			folder.NotWritten = append(folder.NotWritten, fmt.Sprintf("%s: %s", text.Count(n, "change"), why))
		} else if why == "" {
			run.applyTree(context.WithoutCancel(ctx), &folder, carried)
		}
		for _, out := range changed.Skipped[:min(len(changed.Skipped), maxListed)] {
			folder.NotWritten = append(folder.NotWritten, fmt.Sprintf("%s (%s): %s", out.Path, out.Kind, out.Reason))
		}
		if len(folder.NotWritten) > 0 {
			run.warn("%s: not everything that was changed reached the host: %s", copied.Source, folder.NotWritten[0])
		}
		run.outcome.Folders = append(run.outcome.Folders, folder)
	}
	return carried
}

// applyTree applies the changes of one working copy. Files that Git executes are included at
// level elevated, and where the contract names them.
func (run *execution) applyTree(ctx context.Context, folder *Folder, carried carriedOver) {
	inFolder := func(p string) bool { return fsx.Within(p, folder.Source) }
	opts := tree.ApplyOptions{Git: run.Effective.FilesystemLevel == policy.Elevated || slices.ContainsFunc(run.resolved.git, inFolder)}
	for _, denied := range run.resolved.denied {
		if denied != folder.Source && inFolder(denied) {
			opts.Deny = append(opts.Deny, denied)
		}
	}
	report, err := run.box.ApplyTree(ctx, run.id, folder.Target, opts)
	if err != nil {
		folder.NotWritten = append(folder.NotWritten, err.Error())
		carried[folder.Target] = err.Error()
	}
	folder.Written = report.Count(tree.Applied)
	for _, change := range report.Changes {
		at := path.Join(folder.Target, change.Path)
		if carried[at] = ""; change.State != tree.Applied {
			carried[at] = cmp.Or(change.Reason, change.State)
			folder.NotWritten = append(folder.NotWritten, fmt.Sprintf("%s (%s): %s", change.Path, change.Change, change.Reason))
		}
	}
	if more := len(folder.NotWritten) - maxListed; more > 0 {
		folder.NotWritten = append(folder.NotWritten[:maxListed], fmt.Sprintf("and %d more", more))
	}
}

// missing lists the files that the contract names and the program wrote, but that are not on
// the host.
func (c carriedOver) missing(r Resolved, w written) (differences []Difference) {
	listed := map[string]bool{}
	for i, want := range slices.Concat(r.outputs, r.artifacts) {
		file, ok := w.files[want.target]
		reason, known := c[want.target]
		if !ok || want.source == "" || known && reason == "" || listed[want.target] {
			continue
		}
		listed[want.target] = true
		for at := path.Dir(want.target); reason == "" && at != path.Dir(at); at = path.Dir(at) {
			reason = c[at]
		}
		got := cmp.Or(reason, "it was not reached")
		if file.kept != "" {
			got += "; it is kept at " + file.kept
		}
		what := "output_file"
		if i >= len(r.outputs) {
			what = "artifact"
		}
		differences = append(differences, Difference{What: what, Path: want.path, Problem: notApplied, Expected: "the file at " + want.source, Got: got})
	}
	return differences
}
