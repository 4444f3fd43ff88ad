package evidence

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// CheckReport is what a gate directory looks like beside its manifest.
type CheckReport struct {
	// Missing are required files and files of the manifest that are not there, sorted.
	Missing []string
	// Findings are files that are not what the manifest says, sorted by file.
	Findings []Finding
	// ManifestSHA256 is the hash of the manifest as it is there; empty without one.
	ManifestSHA256 string
	// Files is how many files the manifest lists.
	Files int
}

// CheckFiles compares a gate directory with its manifest. It finds what is missing, was
// changed or cut, was added, is a link or a pipe now, and a manifest or artifacts.json
// that says something impossible. Nothing that it reads is trusted, files are streamed,
// and links are never followed. An error is one of the machine or of ctx only.
//
// Whoever can change all files can make them fit again: only a signature, or a manifest
// hash that was kept elsewhere, shows that.
func CheckFiles(ctx context.Context, root *os.Root) (CheckReport, error) {
	c := &fileCheck{ctx: ctx, root: root, listed: map[string]string{}}
	if err := c.run(); err != nil {
		return CheckReport{}, err
	}
	slices.Sort(c.report.Missing)
	c.report.Missing = slices.Compact(c.report.Missing)
	slices.SortFunc(c.report.Findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Subject, b.Subject), strings.Compare(a.Detail, b.Detail))
	})
	return c.report, nil
}

type fileCheck struct {
	ctx    context.Context //nolint:containedctx // lives as long as the one call that it belongs to
	root   *os.Root
	report CheckReport
	// listed are the hashes of the manifest by name.
	listed map[string]string
}

func (c *fileCheck) tampered(name, format string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{Reason: ReasonTampered, Subject: name, Detail: fmt.Sprintf("%q ", name) + fmt.Sprintf(format, args...) + "."})
}

// problem takes what is wrong with a file into the report; an error of the machine it
// returns.
func (c *fileCheck) problem(name string, err error) error {
	var file *FileError
	switch {
	case err == nil:
		return nil
	case isMissing(err):
		c.report.Missing = append(c.report.Missing, name)
		return nil
	case errors.As(err, &file):
		c.tampered(name, "%s", file.Rule)
		return nil
	}
	return err
}

func (c *fileCheck) run() error {
	found, err := list(c.ctx, c.root)
	if errors.Is(err, errManyFiles) {
		c.tampered(Dir, "%s", err)
		found = nil
	} else if err != nil {
		return err
	}
	for _, name := range Required {
		if _, err := c.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			c.report.Missing = append(c.report.Missing, name)
		}
	}
	manifest, ok, err := c.manifest()
	if err != nil || !ok {
		return err
	}
	c.report.Files = len(manifest.Files)
	for _, f := range manifest.Files {
		if err := c.file(f); err != nil {
			return err
		}
	}
	for _, e := range found {
		switch _, listed := c.listed[e.name]; {
		case listed: // looked at above
		case e.problem != "":
			c.tampered(e.name, "%s", e.problem)
		default:
			c.tampered(e.name, "is not in %s", ManifestFile)
		}
	}
	return c.artifacts()
}

func (c *fileCheck) manifest() (m Manifest, ok bool, err error) {
	text, err := ReadText(c.root, ManifestFile, MaxDocument)
	if err != nil {
		return m, false, c.problem(ManifestFile, err)
	}
	sum := sha256.Sum256(text)
	c.report.ManifestSHA256 = hex.EncodeToString(sum[:])
	if err := Decode(text, &m); err != nil {
		c.tampered(ManifestFile, "%s", err)
		return m, false, nil
	}
	if m.SchemaVersion != ManifestVersion {
		c.tampered(ManifestFile, "has the version %q, not %q", m.SchemaVersion, ManifestVersion)
	}
	return m, true, nil
}

// file compares one file with its line of the manifest.
func (c *fileCheck) file(f HashedFile) error {
	switch _, twice := c.listed[f.FilePath]; {
	case !fs.ValidPath(f.FilePath):
		c.tampered(ManifestFile, "lists %q, which is not a path below the gate directory", f.FilePath)
		return nil
	case !isEvidence(f.FilePath):
		c.tampered(ManifestFile, "lists %q, which is no file of nodes 1 to 4", f.FilePath)
		return nil
	case twice:
		c.tampered(ManifestFile, "lists %q twice", f.FilePath)
		return nil
	case !IsSHA256(f.SHA256):
		c.tampered(ManifestFile, "has no SHA-256 of %q", f.FilePath)
	case f.Role != roleOf(f.FilePath):
		c.tampered(ManifestFile, "gives %q the role %q, which is %q", f.FilePath, f.Role, roleOf(f.FilePath))
	}
	c.listed[f.FilePath] = f.SHA256
	sum, size, err := hashFile(c.ctx, c.root, f.FilePath)
	switch {
	case err != nil:
		return c.problem(f.FilePath, err)
	case sum == f.SHA256:
	case size == 0:
		c.tampered(f.FilePath, "is empty, and was not when it was hashed")
	default:
		c.tampered(f.FilePath, "is not what was hashed: it has the SHA-256 %s, the manifest says %q", sum, f.SHA256)
	}
	return nil
}

// artifacts compares artifacts.json with the manifest.
func (c *fileCheck) artifacts() error {
	var a Artifacts
	if err := Read(c.root, ArtifactsFile, MaxDocument, &a); err != nil {
		if isMissing(err) {
			return nil // known from the required files
		}
		return c.problem(ArtifactsFile, err)
	}
	told := map[string]bool{}
	for _, f := range a.Artifacts {
		sum, listed := c.listed[f.FilePath]
		switch {
		case told[f.FilePath]:
			c.tampered(ArtifactsFile, "lists %q twice", f.FilePath)
		case !listed || !isArtifact(f.FilePath):
			c.tampered(ArtifactsFile, "lists %q, which is no artifact of this gate", f.FilePath)
		case sum != f.SHA256:
			c.tampered(ArtifactsFile, "has another hash of %q than %s", f.FilePath, ManifestFile)
		case f.Role != roleOf(f.FilePath):
			c.tampered(ArtifactsFile, "gives %q the role %q, which is %q", f.FilePath, f.Role, roleOf(f.FilePath))
		}
		told[f.FilePath] = true
	}
	for name := range c.listed {
		if isArtifact(name) && !told[name] {
			c.tampered(ArtifactsFile, "does not list %q", name)
		}
	}
	return nil
}
