package contract

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/policy"
)

// Classes of retention (CX-05): streams and exit codes are of the session, files and
// artifacts are evidence.
const (
	RetainSession  = "session"
	RetainEvidence = "evidence"
)

// written is what a program left, by the path inside the container.
type written struct {
	files map[string]writtenFile
	// odd are entries that are no regular files, or were left out, with the reason.
	odd map[string]string
	// gone is what the program deleted.
	gone map[string]bool
}

// writtenFile is one regular file that a program created or changed.
type writtenFile struct {
	size   int64
	sha256 string
	// kept is where its bytes are on the host; empty if they are nowhere.
	kept string
}

const (
	// maxExtra bounds how many files are named that the contract does not.
	maxExtra = 100
	// maxArtifactText bounds the text of an artifact in the outcome.
	maxArtifactText = 64 << 10
)

// judgement is what a program's files are compared with the contract.
type judgement struct {
	files       []OutputFile
	artifacts   []Artifact
	differences []Difference
	warnings    []string
	// tooLarge says that the output files are more than the contract permits.
	tooLarge bool
}

// judgeOutputs compares what a program left with what the contract wants. Files that
// it does not name are listed, and differ if it names any, but are no failure.
func judgeOutputs(r Resolved, e Effective, w written) judgement {
	j := judgement{files: []OutputFile{}, artifacts: []Artifact{}}
	named := map[string]bool{}
	total, room := int64(0), int64(e.OutputFiles)
	count := func(name string, size int64) {
		if before := total; before <= room && before+size > room {
			j.differ("output_file", name, "too_large", fmt.Sprintf("at most %v in all output files", policy.Size(room)),
				fmt.Sprintf("%d bytes, with it %d in all", size, before+size))
		}
		total += size
		j.tooLarge = total > room
	}
	for _, want := range r.outputs {
		file, ok := j.find("output_file", want, w)
		if named[want.target] || !ok {
			continue
		}
		named[want.target] = true
		j.files = append(j.files, OutputFile{Path: want.path, SizeBytes: file.size, SHA256: file.sha256, Declared: true, Retention: RetainEvidence})
		count(want.path, file.size)
	}
	j.judgeArtifacts(r, e, w, named)
	declares, extra := len(r.outputs)+len(r.artifacts) > 0, 0
	for _, target := range slices.Sorted(maps.Keys(w.files)) {
		if named[target] {
			continue
		}
		file, name := w.files[target], shownPath(target)
		j.files = append(j.files, OutputFile{Path: name, SizeBytes: file.size, SHA256: file.sha256, Retention: RetainEvidence})
		count(name, file.size)
		if extra++; declares && extra <= maxExtra {
			j.differ("output_file", name, "extra", "no such file in the contract", fmt.Sprintf("%d bytes", file.size))
		}
	}
	if declares && extra > maxExtra {
		j.warnings = append(j.warnings, fmt.Sprintf("%d more files are not named in the contract; output_files lists them", extra-maxExtra))
	}
	slices.SortStableFunc(j.files, func(a, b OutputFile) int { return strings.Compare(a.Path, b.Path) })
	return j
}

// shownPath is a path inside the container as the outcome shows it: below the root
// it is relative to that.
func shownPath(target string) string {
	if rest, ok := strings.CutPrefix(target, rootTarget+"/"); ok {
		return rest
	}
	return target
}

func (j *judgement) differ(what, path, problem, expected, got string) {
	j.differences = append(j.differences, Difference{What: what, Path: path, Problem: problem, Expected: expected, Got: got})
}

// find looks for a file that the contract names; what is not there differs.
func (j *judgement) find(what string, want declared, w written) (writtenFile, bool) {
	if file, ok := w.files[want.target]; ok {
		return file, true
	}
	if why, odd := w.odd[want.target]; odd {
		j.differ(what, want.path, "not_a_file", "a regular file", why)
		return writtenFile{}, false
	}
	if !w.gone[want.target] && want.source != "" {
		if file, ok := j.unchanged(want); ok {
			return file, true
		}
	}
	j.differ(what, want.path, "missing", "a regular file", "it was not written")
	return writtenFile{}, false
}

// unchanged is a file that was there before, with the content that it has now: whether
// the program wrote the same again cannot be told, and need not be.
func (j *judgement) unchanged(want declared) (writtenFile, bool) {
	p, rule := look(want.source)
	if rule != "" || p.real != want.source || !p.info.Mode().IsRegular() {
		return writtenFile{}, false
	}
	room := p.info.Size()
	file, rule := hashFile(p, &room)
	if rule != "" {
		return writtenFile{}, false
	}
	warning := fmt.Sprintf("%s %s was there before with the same content", want.field, quoted(want.path))
	if !slices.Contains(j.warnings, warning) {
		j.warnings = append(j.warnings, warning)
	}
	return writtenFile{size: file.SizeBytes, sha256: file.SHA256, kept: p.real}, true
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
			j.differ("artifact", want.path, "too_large", fmt.Sprintf("at most %v in all artifacts", e.Artifacts),
				fmt.Sprintf("%d bytes, with it %d in all", file.size, total))
			continue
		}
		mime := e.Contract.Outputs.Artifacts[i].MIMEType
		if mime == "" {
			mime = "application/octet-stream"
		}
		j.artifacts = append(j.artifacts, Artifact{MIMEType: mime, Data: artifactText(mime, file), Metadata: map[string]string{
			"path": want.path, "size_bytes": strconv.FormatInt(file.size, 10), "sha256": file.sha256, "kept_at": file.kept,
			"retention": RetainEvidence,
		}})
	}
}

// artifactText is the text of a small text artifact.
func artifactText(mime string, file writtenFile) string {
	base, _, _ := strings.Cut(mime, ";")
	text := strings.HasPrefix(base, "text/") || base == "application/json" || strings.HasSuffix(base, "+json") ||
		base == "application/xml" || strings.HasSuffix(base, "+xml") || base == "application/yaml"
	if !text || file.kept == "" || file.size > maxArtifactText {
		return ""
	}
	data, err := readRegular(file.kept, maxArtifactText)
	if err != nil || int64(len(data)) != file.size || !utf8.Valid(data) {
		return "" // metadata says where the bytes are
	}
	return string(data)
}

// readRegular reads a regular file of at most so many bytes.
func readRegular(name string, most int64) ([]byte, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, os.ErrInvalid
	}
	return os.ReadFile(name)
}
