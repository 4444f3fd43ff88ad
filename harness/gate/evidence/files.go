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
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
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
	if !fs.ValidPath(name) || name == "." {
		return &FileError{File: name, Rule: "is not a path below the gate directory"}
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
	if err := Decode(text, v); err != nil {
		return &FileError{File: name, Rule: "is no such document: " + err.Error(), Err: err}
	}
	return nil
}

// ReadText reads a file of at most max bytes, as [Read] does.
func ReadText(root *os.Root, name string, max int64) ([]byte, error) {
	file, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, max+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > max:
		return nil, &FileError{File: name, Rule: fmt.Sprintf("has more than %d bytes", max)}
	}
	return text, nil
}

// openFile opens a regular file below root. It follows no link, in the directories either.
func openFile(root *os.Root, name string) (*os.File, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, &FileError{File: name, Rule: "is not a path below the gate directory"}
	}
	file, _, err := fsx.OpenBelow(root, name)
	var at *fs.PathError
	var directory *fsx.NotDirectoryError
	var odd *fsx.NotRegularError
	switch {
	case errors.As(err, &directory) && errors.As(err, &at):
		return nil, &FileError{File: name, Rule: "is behind " + at.Path + ", which is " + fsx.Kind(directory.Mode) + " and no folder"}
	case errors.As(err, &odd):
		return nil, &FileError{File: name, Rule: odd.Error(), Err: err}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, &FileError{File: name, Rule: "is missing", Err: fs.ErrNotExist}
	case err != nil:
		return nil, err
	}
	return file, nil
}

var sha256Text = regexp.MustCompile(`^[0-9a-f]{64}$`)

// IsSHA256 reports whether text is a SHA-256: 64 lower-case hexadecimal digits.
func IsSHA256(text string) bool { return sha256Text.MatchString(text) }

// SHA256 is the hash of a text.
func SHA256(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// found is one file that nodes 1 to 4 left.
type found struct {
	HashedFile
	size int64
	// problem says why the file cannot be evidence; empty for a regular file. Such a file has
	// no hash.
	problem string
}

// hashAll hashes the files that nodes 1 to 4 left and that are wanted, sorted by name: all
// of [Dir] except the manifest, and two files beside it. It follows no link.
func hashAll(ctx context.Context, root *os.Root, want func(string) bool) ([]found, error) {
	var all []found
	add := func(name string, info fs.FileInfo) error {
		if !want(name) {
			return nil
		}
		f := found{HashedFile: HashedFile{FilePath: name, Role: roleOf(name)}, size: info.Size()}
		switch {
		case !utf8.ValidString(name) || strings.Contains(name, `\`):
			f.problem = "has a name that cannot be listed"
		case !info.Mode().IsRegular():
			f.problem = "is " + fsx.Kind(info.Mode()) + ", not a regular file"
		default:
			file, err := openFile(root, name)
			if err != nil {
				return err
			}
			defer file.Close()
			sum := sha256.New()
			if f.size, err = io.Copy(sum, fsx.WithContext(ctx, file)); err != nil {
				return err
			}
			f.SHA256 = hex.EncodeToString(sum.Sum(nil))
		}
		all = append(all, f)
		return nil
	}
	for _, name := range []string{WishLockFile, RunManifestFile, Dir} {
		info, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case name == Dir && info.IsDir():
			if err := walk(ctx, root, add); err != nil {
				return nil, err
			}
		default:
			if err := add(name, info); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.FilePath, b.FilePath) })
	return all, nil
}

// walk visits [Dir]. A directory is visited only if no path can lead through its name.
func walk(ctx context.Context, root *os.Root, visit func(string, fs.FileInfo) error) error {
	dir, err := root.OpenRoot(Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return fsx.Walk(ctx, dir, func(name string, info fs.FileInfo) (into bool, err error) {
		if info.IsDir() && utf8.ValidString(name) {
			return true, nil
		}
		return false, visit(Dir+"/"+name, info)
	})
}

// hashed hashes the wanted files. One that is not a regular file is an error: no node makes
// such a thing.
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
	text, err := Canonical(Manifest{ManifestVersion, files})
	if err != nil {
		return "", err
	}
	return SHA256(text), WriteText(root, ManifestFile, text)
}

// CheckReport compares a gate directory with its manifest.
type CheckReport struct {
	// Missing are required and listed files that do not exist, sorted.
	Missing []string
	// Findings are files that differ from the manifest, sorted by file.
	Findings []Finding
	// ManifestSHA256 is the hash of the manifest; empty without one.
	ManifestSHA256 string
	// Files is the number of files in the manifest.
	Files int
}

// CheckFiles hashes a gate directory, once, and compares it with its manifest. It finds files
// that are missing, changed, cut, added, or a link or a pipe now, and a manifest or an
// artifacts.json that no node wrote. It trusts nothing that it reads and follows no link. An
// error is one of the machine or of ctx only.
//
// A forger who changes all files can make their hashes fit: only a signature, or a manifest
// hash that is kept elsewhere, shows that.
func CheckFiles(ctx context.Context, root *os.Root) (CheckReport, error) {
	var r CheckReport
	all, err := hashAll(ctx, root, func(name string) bool { return name != ManifestFile })
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
	if err := Decode(text, &m); err != nil {
		r.tampered(ManifestFile, "%s", err)
		return nil
	}
	r.Files = len(m.Files)
	listed := map[string]string{}
	for _, f := range m.Files {
		if !fs.ValidPath(f.FilePath) || !isEvidence(f.FilePath) {
			r.tampered(ManifestFile, "lists %q, which is not a file of nodes 1 to 4", f.FilePath)
			continue
		}
		listed[f.FilePath] = f.SHA256
		r.file(f, there)
	}
	for _, f := range all {
		switch _, ok := listed[f.FilePath]; {
		case f.problem != "":
			r.tampered(f.FilePath, "%s", f.problem)
		case !ok:
			r.tampered(f.FilePath, "is not in %s", ManifestFile)
		}
	}
	return r.derived(root, text, listed)
}

// file compares one file with its line of the manifest.
func (r *CheckReport) file(line HashedFile, there map[string]found) {
	switch f, ok := there[line.FilePath]; {
	case !ok:
		r.Missing = append(r.Missing, line.FilePath)
	case f.problem != "" || f.SHA256 == line.SHA256:
	case f.size == 0:
		r.tampered(line.FilePath, "is empty, and was not when it was hashed")
	default:
		r.tampered(line.FilePath, "is not what was hashed: it has the SHA-256 %s, the manifest says %q", f.SHA256, line.SHA256)
	}
}

// derived writes the manifest and artifacts.json again from the names and hashes of the
// manifest, and compares the bytes: roles, order, version and keys follow from them.
func (r *CheckReport) derived(root *os.Root, manifest []byte, listed map[string]string) error {
	files, artifacts := []HashedFile{}, []HashedFile{}
	for name, sum := range listed {
		f := HashedFile{FilePath: name, SHA256: sum, Role: roleOf(name)}
		files = append(files, f)
		if isArtifact(name) {
			artifacts = append(artifacts, f)
		}
	}
	byName := func(a, b HashedFile) int { return strings.Compare(a.FilePath, b.FilePath) }
	slices.SortFunc(files, byName)
	slices.SortFunc(artifacts, byName)
	want, err := Canonical(Manifest{ManifestVersion, files})
	if err != nil {
		return err
	}
	if !bytes.Equal(manifest, want) {
		r.tampered(ManifestFile, "is not what node 4 writes for the files and hashes that it lists")
	}
	text, err := ReadText(root, ArtifactsFile, MaxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // known from the required files
	} else if err != nil {
		return r.problem(ArtifactsFile, err)
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
