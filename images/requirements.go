package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"time"
)

// requirementsFile is how Dockerfile.runner calls the requirements. It is empty
// for an image that has none.
const requirementsFile = "requirements.lock"

// checkRecipe refuses files that are not the pinned ones, before anything is made
// of them, and an index that would leave a password in the image.
func checkRecipe(cat Catalog, entry Entry, opts EnsureOptions) error {
	for _, file := range []struct{ name, text, pin, key string }{
		{entry.Dockerfile, opts.Dockerfile, entry.DockerfileSHA256, "dockerfile_sha256"},
		{entry.Requirements, opts.Requirements, entry.RequirementsSHA256, "requirements_sha256"},
	} {
		if file.name == "" {
			continue
		}
		sum := sha256.Sum256([]byte(file.text))
		if have := hex.EncodeToString(sum[:]); have != file.pin {
			return &CannotMakeError{
				Name:   entry.Name,
				Reason: file.name + " has SHA-256 " + have + ", the catalog pins " + file.pin,
				hint:   "set " + file.key + " in " + cat.Source + " after a wanted change",
			}
		}
	}
	if opts.PipIndex == "" {
		return nil
	}
	// The URL is not repeated: it may hold a password.
	index, err := url.Parse(opts.PipIndex)
	if err != nil || index.Host == "" || index.Scheme != "https" && index.Scheme != "http" {
		return &CannotMakeError{
			Name: entry.Name, Reason: "the package index is not an http or https URL",
			hint: "give one such as https://pypi.org/simple",
		}
	}
	if index.User != nil {
		return &CannotMakeError{
			Name: entry.Name, Reason: "the URL of the package index holds a user or a password, which would stay in the image's history",
			hint: "use an index that needs none: the hashes make its answers safe",
		}
	}
	return nil
}

// buildContext is what the builder may read: the Dockerfile and the requirements,
// with fixed owners, modes and times.
func (m *maker) buildContext() (io.Reader, error) {
	requirements := ""
	if m.entry.Requirements != "" {
		requirements = m.opts.Requirements
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, file := range []struct{ name, text string }{
		{m.entry.Dockerfile, m.opts.Dockerfile}, {requirementsFile, requirements},
	} {
		header := &tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.text)), ModTime: m.entry.epoch().Truncate(time.Second)}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("build context: %w", err)
		}
		if _, err := io.WriteString(w, file.text); err != nil {
			return nil, fmt.Errorf("build context: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("build context: %w", err)
	}
	return &buf, nil
}
