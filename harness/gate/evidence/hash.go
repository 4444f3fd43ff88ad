package evidence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/evalbox/evalbox/internal/fsx"
)

var sha256Text = regexp.MustCompile(`^[0-9a-f]{64}$`)

// IsSHA256 says whether text is a SHA-256 as this package writes it: 64 lower-case
// hexadecimal digits.
func IsSHA256(text string) bool { return sha256Text.MatchString(text) }

// hashFile is the SHA-256 of a regular file below root, and its size in bytes.
func hashFile(ctx context.Context, root *os.Root, name string) (string, int64, error) {
	file, err := openFile(root, name)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, fsx.WithContext(ctx, file))
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(sum.Sum(nil)), size, nil
}

// hashAll hashes the files that are wanted, sorted by name. What is no regular file
// among them is an error: no node makes such a thing.
func hashAll(ctx context.Context, root *os.Root, want func(string) bool) ([]HashedFile, error) {
	found, err := list(ctx, root)
	if err != nil {
		return nil, err
	}
	files := []HashedFile{}
	for _, e := range found {
		if !want(e.name) {
			continue
		}
		if e.problem != "" {
			return nil, fmt.Errorf("%q %s", e.name, e.problem)
		}
		sum, _, err := hashFile(ctx, root, e.name)
		if err != nil {
			return nil, err
		}
		files = append(files, HashedFile{FilePath: e.name, SHA256: sum, Role: roleOf(e.name)})
	}
	return files, nil
}

// HashArtifacts is node 4 (RT-13): it hashes the patch, the logs, what the tests said and
// what the gates made, and writes [ArtifactsFile]. Files are streamed.
func HashArtifacts(ctx context.Context, root *os.Root) (Artifacts, error) {
	files, err := hashAll(ctx, root, isArtifact)
	if err != nil {
		return Artifacts{}, err
	}
	artifacts := Artifacts{Artifacts: files}
	return artifacts, Write(root, ArtifactsFile, artifacts)
}

// WriteManifest hashes all files of nodes 1 to 4 and writes [ManifestFile]. It returns
// the manifest's own SHA-256, which stands for all of them.
func WriteManifest(ctx context.Context, root *os.Root) (string, error) {
	files, err := hashAll(ctx, root, isEvidence)
	if err != nil {
		return "", err
	}
	text, err := Canonical(Manifest{SchemaVersion: ManifestVersion, Files: files})
	if err != nil {
		return "", err
	}
	if err := WriteText(root, ManifestFile, text); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(text)), nil
}
