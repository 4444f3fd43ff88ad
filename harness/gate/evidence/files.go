package evidence

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
)

// MaxDocument bounds a document of a gate directory, in bytes. Those that this package writes
// are far smaller.
const MaxDocument = 64 << 20

// A FileError is a file of a gate directory that is missing, not a regular file, too large, or
// not a document. Any other error of reading is one of the machine. [errors.Is] with
// [fs.ErrNotExist] recognizes a missing file.
type FileError struct {
	// File is its name relative to the gate directory, Rule what is wrong with it.
	File, Rule string
	Err        error
}

func (e *FileError) Error() string { return e.File + " " + e.Rule }

func (e *FileError) Unwrap() error { return e.Err }

// Write encodes v ([Canonical]) and writes it as [WriteText] does.
func Write(root *os.Root, name string, v any) error {
	text, err := Canonical(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return WriteText(root, name, text)
}

// WriteText writes a file below root and creates its directories. The file appears whole or
// not at all. It replaces an earlier file or link, and follows no link. It is not synced to the
// disk: a loss of power shows as a difference from the manifest.
func WriteText(root *os.Root, name string, text []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	// A crash may leave a temporary file, which the manifest does not list.
	return fsx.WriteIn(root, name, text, 0o644, false)
}

// Read decodes a document of at most max bytes into v, a pointer ([Decode]). It reads regular
// files only and follows no link. A problem of the file itself is a [*FileError].
func Read(root *os.Root, name string, max int64, v any) error {
	text, err := ReadText(root, name, max)
	if err != nil {
		return err
	}
	return DecodeFile(name, text, v)
}

// DecodeFile decodes the text of a file ([Decode]). An error is a [*FileError].
func DecodeFile(name string, text []byte, v any) error {
	err := Decode(text, v)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSyntax):
		return &FileError{File: name, Rule: err.Error(), Err: err}
	}
	return &FileError{File: name, Rule: "has another form than expected: " + err.Error(), Err: err}
}

// ReadText reads a file of at most max bytes, as [Read] does.
func ReadText(root *os.Root, name string, max int64) ([]byte, error) {
	file, _, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, max+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > max:
		return nil, &FileError{File: name, Rule: fmt.Sprintf("has more than %d bytes, the most that is read", max)}
	}
	return text, nil
}

func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return &FileError{File: name, Rule: "is not a path below the gate directory"}
	}
	return nil
}

// openFile opens a regular file below root. It follows no link, in the directories either.
func openFile(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	if err := checkName(name); err != nil {
		return nil, nil, err
	}
	file, info, err := fsx.OpenBelow(root, name)
	var at *fs.PathError
	var directory *fsx.NotDirectoryError
	var odd *fsx.NotRegularError
	switch {
	case errors.As(err, &directory) && errors.As(err, &at):
		err = &FileError{File: name, Rule: "is behind " + at.Path + ", which is " + fsx.Kind(directory.Mode) + " and no directory"}
	case errors.As(err, &odd):
		err = &FileError{File: name, Rule: odd.Error(), Err: err}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		err = &FileError{File: name, Rule: "is missing", Err: fs.ErrNotExist}
	}
	return file, info, err
}

var sha256Text = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// IsSHA256 reports whether text is a SHA-256: 64 lower-case hexadecimal digits.
func IsSHA256(text string) bool { return sha256Text().MatchString(text) }

// SHA256 is the hash of a text.
func SHA256(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// found is one file that nodes 1 to 4 left. problem says why it cannot be evidence; empty for a
// regular file. A file with a problem has no hash.
type found struct {
	HashedFile
	problem string
}

// hashAll hashes the files that nodes 1 to 4 left and that are wanted, sorted by name. It
// follows no link.
func hashAll(ctx context.Context, root *os.Root, want func(string) bool) ([]found, error) {
	var all []found
	err := fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (into bool, err error) {
		switch {
		case info.IsDir() && (name == Dir || below(name, Dir)) && utf8.ValidString(name):
			return true, nil
		case !want(name) && name != Dir:
			return false, nil
		}
		f := found{HashedFile: HashedFile{FilePath: name, Role: roleOf(name)}}
		switch {
		case !utf8.ValidString(name) || strings.Contains(name, `\`):
			f.problem = "has a name that cannot be listed"
		case !info.Mode().IsRegular():
			f.problem = "is " + fsx.Kind(info.Mode()) + ", not a regular file"
		default:
			var file *os.File
			if file, info, err = openFile(root, name); err != nil {
				return false, err
			}
			defer file.Close()
			f.SHA256, err = fsx.Sum(ctx, sha256.New(), file, info)
		}
		all = append(all, f)
		return false, err
	})
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.FilePath, b.FilePath) })
	return all, err
}

// hashed hashes the wanted files. One that is not a regular file is an error: no node creates
// such a file.
func hashed(ctx context.Context, root *os.Root, want func(string) bool) ([]HashedFile, error) {
	all, err := hashAll(ctx, root, want)
	files := make([]HashedFile, len(all))
	for i, f := range all {
		if f.problem != "" {
			return nil, fmt.Errorf("%q %s", f.FilePath, f.problem)
		}
		files[i] = f.HashedFile
	}
	return files, err
}

// HashArtifacts is node 4 (RT-13): it hashes the patch, the logs, the test outputs and the
// artifacts of the gates, and writes [ArtifactsFile].
func HashArtifacts(ctx context.Context, root *os.Root) (Artifacts, error) {
	files, err := hashed(ctx, root, isArtifact)
	if err != nil {
		return Artifacts{}, err
	}
	return Artifacts{files}, Write(root, ArtifactsFile, Artifacts{files})
}

// WriteManifest hashes all files of nodes 1 to 4 and writes [ManifestFile]. It returns the
// SHA-256 of the manifest, which stands for all of them.
func WriteManifest(ctx context.Context, root *os.Root) (string, error) {
	files, err := hashed(ctx, root, isEvidence)
	if err != nil {
		return "", err
	}
	text, err := Canonical(Manifest{manifestVersion, files})
	if err != nil {
		return "", err
	}
	return SHA256(text), WriteText(root, ManifestFile, text)
}

// CheckReport compares a gate directory with its manifest.
type CheckReport struct {
	Missing        []string  // required and listed files that do not exist, sorted
	Findings       []Finding // files that differ from the manifest, sorted by file
	ManifestSHA256 string    // empty without a manifest
	Files          int       // the number of files in the manifest
}

// CheckFiles hashes a gate directory, once, and compares it with its manifest. It finds files
// that are missing, changed, cut, added, or a link or a pipe now, and a manifest or an
// artifacts.json that no node wrote. It trusts nothing that it reads and follows no link. An
// error is one of the machine or of ctx, or a file that changes while it is read.
//
// A forger who changes all files can make their hashes fit: only a signature, or a manifest
// hash that is kept elsewhere, shows that.
func CheckFiles(ctx context.Context, root *os.Root) (CheckReport, error) {
	var r CheckReport
	all, err := hashAll(ctx, root, isEvidence)
	if err == nil {
		err = r.compare(root, all)
	}
	if err != nil {
		return CheckReport{}, err
	}
	slices.Sort(r.Missing)
	r.Missing = slices.Compact(r.Missing)
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Subject, b.Subject), strings.Compare(a.Detail, b.Detail))
	})
	return r, nil
}

func (r *CheckReport) compare(root *os.Root, all []found) error {
	there := map[string]found{}
	for _, f := range all {
		there[f.FilePath] = f
	}
	for _, name := range Required {
		if _, ok := there[name]; !ok {
			r.Missing = append(r.Missing, name)
		}
	}
	text, err := ReadText(root, ManifestFile, MaxDocument)
	if err != nil {
		return r.problem(ManifestFile, err)
	}
	r.ManifestSHA256 = SHA256(text)
	var m Manifest
	if err := DecodeFile(ManifestFile, text, &m); err != nil {
		return r.problem(ManifestFile, err)
	}
	r.Files = len(m.Files)
	listed := map[string]string{}
	for _, line := range m.Files {
		name := line.FilePath
		if !fs.ValidPath(name) || !isEvidence(name) {
			r.tampered(ManifestFile, "lists %q, which is not a file of nodes 1 to 4", name)
			continue
		}
		listed[name] = line.SHA256
		if f, ok := there[name]; !ok {
			r.Missing = append(r.Missing, name)
		} else if f.problem == "" && f.SHA256 != line.SHA256 {
			r.tampered(name, "is not what was hashed: it has the SHA-256 %s, the manifest says %q", f.SHA256, line.SHA256)
		}
	}
	for _, f := range all {
		if _, ok := listed[f.FilePath]; f.problem != "" {
			r.tampered(f.FilePath, "%s", f.problem)
		} else if !ok {
			r.tampered(f.FilePath, "is not in %s", ManifestFile)
		}
	}
	return r.derived(root, text, listed)
}

// derived writes the manifest and artifacts.json again from the names and hashes of the
// manifest, and compares the bytes: roles, order, version and keys follow from them.
func (r *CheckReport) derived(root *os.Root, manifest []byte, listed map[string]string) error {
	files, artifacts := []HashedFile{}, []HashedFile{}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		f := HashedFile{FilePath: name, SHA256: listed[name], Role: roleOf(name)}
		files = append(files, f)
		if isArtifact(name) {
			artifacts = append(artifacts, f)
		}
	}
	want, err := Canonical(Manifest{manifestVersion, files})
	if err == nil && !bytes.Equal(manifest, want) {
		r.tampered(ManifestFile, "is not what node 4 writes for the files and hashes that it lists")
	}
	text, readErr := ReadText(root, ArtifactsFile, MaxDocument)
	if err != nil || readErr != nil {
		return errors.Join(err, r.problem(ArtifactsFile, readErr))
	}
	if want, err = Canonical(Artifacts{artifacts}); err == nil && !bytes.Equal(text, want) {
		r.tampered(ArtifactsFile, "does not follow from %s", ManifestFile)
	}
	return err
}

func (r *CheckReport) tampered(name, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Reason: ReasonTampered, Subject: name, Detail: fmt.Sprintf("%q ", name) + fmt.Sprintf(format, args...) + "."})
}

// problem adds a problem of a file to the report. It returns an error of the machine.
func (r *CheckReport) problem(name string, err error) error {
	var file *FileError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.Missing = append(r.Missing, name)
	case errors.As(err, &file):
		r.tampered(name, "%s", file.Rule)
	default:
		return err
	}
	return nil
}
