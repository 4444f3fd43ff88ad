package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
)

// open opens an artifact once. Nil without an error means that there is none to read:
// it was read before, or that there is none is told, or no problem.
func (v *verification) open(name string, optional bool) *os.File {
	if v.tried[name] {
		return nil
	}
	v.tried[name] = true
	file, info, err := fsx.OpenBelow(v.root, filepath.FromSlash(name))
	if err != nil {
		problem := openError(text.Short(name, maxName), err)
		if v.absent[name] = optional && problem.Kind == KindMissing; !v.absent[name] {
			v.report.add(problem)
		}
		return nil
	}
	if why := v.from.foreign(name, info); why != "" {
		v.report.add(artifactError(text.Short(name, maxName), 0, KindStale, "%s", why))
		_ = file.Close() // was not read
		return nil
	}
	return file
}

// took adds an artifact to the report.
func (v *verification) took(a Artifact) {
	if v.from.changed(a) {
		v.report.add(artifactError(text.Short(a.Path, maxName), 0, KindStale, "was changed by somebody else since the run"))
	}
	v.at[a.Path] = len(v.report.Artifacts)
	v.report.Artifacts = append(v.report.Artifacts, a)
}

// document reads one JSON object; nil fields if it has a problem, which is told.
func (v *verification) document(ctx context.Context, name string, role Role, required []string, optional bool) (map[string]json.RawMessage, error) {
	file := v.open(name, optional)
	if file == nil {
		return nil, nil
	}
	defer file.Close()
	text, sum, err := readDocument(ctx, file, name)
	if err != nil {
		return nil, v.judge(err)
	}
	v.took(Artifact{Path: name, Role: role, SizeBytes: int64(len(text)), SHA256: sum})
	fields, problem := parseDocument(text, name, required)
	v.report.add(problem)
	return fields, nil
}

// records reads lines, and hashes all bytes whatever is wrong with one of them.
func (v *verification) records(ctx context.Context, name string, role Role, optional bool, check func(text []byte, line int64) *ArtifactError) error {
	file := v.open(name, optional)
	if file == nil {
		return nil
	}
	defer file.Close()
	sum := sha256.New()
	counted := &counter{w: sum}
	read := io.TeeReader(file, counted)
	records, err := scanRecords(ctx, read, name, check, nil)
	if err := v.judge(err); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, fsx.WithContext(ctx, read)); err != nil {
		return v.judge(readError(ctx, name, err))
	}
	v.took(Artifact{Path: name, Role: role, SizeBytes: counted.n, SHA256: sumText(sum), Records: &records})
	return nil
}

// bytes reads a file of which nothing is demanded.
func (v *verification) bytes(ctx context.Context, name string, role Role, optional bool) error {
	file := v.open(name, optional)
	if file == nil {
		return nil
	}
	defer file.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, fsx.WithContext(ctx, file))
	if err != nil {
		return v.judge(readError(ctx, name, err))
	}
	v.took(Artifact{Path: name, Role: role, SizeBytes: n, SHA256: sumText(sum)})
	return nil
}

// counter counts what passes through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.w.Write(p)
}
