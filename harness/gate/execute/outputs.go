package execute

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	sandboxspec "github.com/evalbox/evalbox/sandbox/spec"
)

// Limits of the kept files of all gates of a pass together. Each report has its own limit. Sizes
// are bytes.
const (
	maxOutputs     = 2_000
	maxOutputBytes = 1 << 30
	maxReportBytes = 64 << 20
	// maxOutputPath bounds a path, and maxSkipped the listed files that were not kept.
	maxOutputPath = 1024
	maxSkipped    = 200
)

// OutputsV1 names the wire form of [Outputs].
const OutputsV1 = "evalbox/gate-outputs/v1"

// Outputs lists the files of one gate that were kept, and those that were not.
type Outputs struct {
	Schema string `json:"schema"`
	// Report is the path of the report file inside the container, if it was kept.
	Report string `json:"report"`
	// Kept are paths relative to the boundary, sorted.
	Kept []string `json:"kept"`
	// Skipped are the first declared files that were not kept, by path; SkippedTotal counts all.
	Skipped      []SkippedOutput `json:"skipped"`
	SkippedTotal int             `json:"skipped_total"`

	// lost describes the first file that should have been kept and was not.
	lost string
}

// SkippedOutput is a file that was not kept, and why.
type SkippedOutput struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

func (o *Outputs) skip(name, reason string) {
	if o.SkippedTotal++; o.SkippedTotal <= maxSkipped {
		o.Skipped = append(o.Skipped, SkippedOutput{name, reason})
	}
}

// lose skips a file that the evidence needs: without it the evidence is not complete.
func (o *Outputs) lose(name, reason string) {
	o.lost = cmp.Or(o.lost, strings.TrimSpace(name+" "+reason))
	o.skip(name, reason)
}

// keep writes the files of a run into the evidence. It is not canceled: everything that it
// copies is bounded.
func (x *run) keep(p *pass, g evidence.Gate, id string, res result.Result) error {
	if err := x.root.MkdirAll(evidence.PassDir(p.name), 0o755); err != nil {
		return fmt.Errorf("gate directory: %w", err)
	}
	file := func(name string) string { return evidence.RawFile(p.name, g.Index, name) }
	record := x.box.Store().RecordDir(id)
	stdout, err1 := x.copyLog(filepath.Join(record, "stdout.log"), file("stdout.log"))
	stderr, err2 := x.copyLog(filepath.Join(record, "stderr.log"), file("stderr.log"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	outputs, err := x.keepOutputs(p, g, id, res)
	if err != nil {
		return err
	}
	if err := evidence.Write(x.root, file("outputs.json"), outputs); err != nil {
		return err
	}
	// The streams are files of their own, which may be shorter than what was printed.
	res.Stdout, res.Stderr = "", ""
	res.StdoutTruncated = stdout < res.StdoutBytes
	res.StderrTruncated = stderr < res.StderrBytes
	text, err := res.Encode()
	if err != nil {
		return err
	}
	return evidence.WriteText(x.root, file("result.json"), text)
}

// copyLog copies the recorded part of a stream. A run that never started has none.
func (x *run) copyLog(from, to string) (n int64, err error) {
	in, err := fsx.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return x.copyFile(strings.NewReader(""), to, 0)
	}
	if err != nil {
		return 0, fmt.Errorf("record of the run: %w", err)
	}
	defer in.Close()
	return x.copyFile(in, to, logBytes(x.m.TimeoutCaps))
}

// copyFile writes a new file of the gate directory.
func (x *run) copyFile(from io.Reader, to string, limit int64) (n int64, err error) {
	n, err = fsx.Create(x.root, to, io.LimitReader(from, limit), 0o644)
	if err != nil {
		return n, fmt.Errorf("gate directory: %s: %w", to, err)
	}
	return n, nil
}

// keepOutputs copies the report and the declared outputs of a gate: regular files that
// the gate itself created or changed. A report that lay in the workspace before says
// nothing about this run.
func (x *run) keepOutputs(p *pass, g evidence.Gate, id string, res result.Result) (Outputs, error) {
	out := Outputs{Schema: OutputsV1, Kept: []string{}, Skipped: []SkippedOutput{}}
	if err := x.keepReport(p, g, id, &out); err != nil {
		return out, err
	}
	if p.name == evidence.BaselinePass || len(x.m.ArtifactPaths) == 0 || len(res.Trees) == 0 {
		return out, nil
	}
	tree := res.Trees[0]
	from, err := os.OpenRoot(x.box.Store().TreeDir(id, 0))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil // nothing was changed
	}
	if err != nil {
		return out, err
	}
	defer from.Close()
	for _, skipped := range tree.Skipped {
		if x.wanted(skipped.Path) {
			out.skip(skipped.Path, "is a "+skipped.Kind+": "+skipped.Reason)
		}
	}
	entries := slices.Concat(tree.Created, tree.Changed)
	slices.SortFunc(entries, func(a, b result.TreeEntry) int { return cmp.Compare(a.Path, b.Path) })
	for _, entry := range entries {
		if entry.Kind != "file" || !x.wanted(entry.Path) {
			continue
		}
		if err := x.keepOutput(p, from, entry, evidence.OutputDir(p.name, g.Index), &out); err != nil {
			return out, err
		}
	}
	if !tree.Complete {
		out.lose("", "the list of changes is not complete")
	}
	if out.lost != "" {
		_ = x.refuse(evidence.ReasonIncomplete, g.Index, "artifact_paths",
			fmt.Sprintf("Declared outputs of gate %d are missing in the evidence: %s.", g.Index, out.lost)) // the other gates run
	}
	return out, nil
}

// wanted reports whether a file below the boundary is a declared output.
func (x *run) wanted(name string) bool {
	return slices.ContainsFunc(x.m.ArtifactPaths, func(pattern string) bool { return spec.Match(pattern, name) })
}

// keepOutput copies one file. Only a failure of the gate directory is an error.
func (x *run) keepOutput(p *pass, from *os.Root, entry result.TreeEntry, dir string, out *Outputs) error {
	switch {
	case entry.PathBase64 != "" || strings.Contains(entry.Path, `\`):
		out.lose(entry.Path, "has a name that is no clean text")
		return nil
	case len(entry.Path) > maxOutputPath:
		out.lose(entry.Path[:maxOutputPath], "has a path that is too long")
		return nil
	case p.kept >= maxOutputs:
		out.lose(entry.Path, fmt.Sprintf("is one too many: %d files are kept", maxOutputs))
		return nil
	case entry.SizeBytes > maxOutputBytes-p.keptBytes:
		out.lose(entry.Path, fmt.Sprintf("is too large: %d bytes are kept of all together", maxOutputBytes))
		return nil
	}
	in, _, err := fsx.OpenIn(from, filepath.FromSlash(entry.Path))
	if err != nil {
		out.lose(entry.Path, "cannot be read: "+fsx.Cause(err).Error())
		return nil
	}
	defer in.Close()
	to := path.Join(dir, entry.Path)
	if err := x.root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	n, err := x.copyFile(in, to, maxOutputBytes-p.keptBytes)
	p.kept++
	p.keptBytes += n
	out.Kept = append(out.Kept, entry.Path)
	return err
}

// keepReport copies the file in which a gate reports its test cases.
func (x *run) keepReport(p *pass, g evidence.Gate, id string, out *Outputs) error {
	if g.ReportPath == "" {
		return nil
	}
	inside := g.ReportPath
	if !path.IsAbs(inside) {
		inside = path.Join(sandboxspec.RepoDir, inside)
	}
	dir, within := x.box.Store().TreeDir(id, 0), sandboxspec.RepoDir
	if fsx.Within(inside, sandboxspec.FinalDir) {
		dir, within = filepath.Join(x.box.Store().RecordDir(id), "final"), sandboxspec.FinalDir
	}
	name, err := filepath.Rel(within, inside)
	if err != nil || !filepath.IsLocal(name) {
		out.skip(inside, "is neither in "+sandboxspec.RepoDir+" nor in "+sandboxspec.FinalDir+", and is gone with the container")
		return nil
	}
	from, err := os.OpenRoot(dir)
	if err != nil {
		out.skip(inside, "was not made by this run")
		return nil
	}
	defer from.Close()
	in, info, err := fsx.OpenIn(from, name)
	if err == nil {
		defer in.Close()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		out.skip(inside, "was not made by this run")
	case err != nil:
		out.skip(inside, "cannot be read: "+fsx.Cause(err).Error())
	case info.Size() > maxReportBytes:
		out.skip(inside, "is too large")
	default:
		out.Report = inside
		_, err = x.copyFile(in, evidence.RawFile(p.name, g.Index, "report"), maxReportBytes)
		return err
	}
	return nil
}
