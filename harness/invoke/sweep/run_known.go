package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/invoke"
)

// known is how a run ended that needs not be done again: it succeeded, its spec is the
// same, what it left is as it was, and verify, if there is one, has nothing against it.
// The error means that this could not be found out, or is that of ctx.
func (f *folder) known(ctx context.Context, name string, spec []byte, verify Verify) (r runFile, known bool, err error) {
	r, succeeded := f.succeeded(name)
	output := filepath.Join(runFolder(name), OutputName)
	if !succeeded || !f.hasSpec(name, spec) || !f.isFolder(runFolder(name)) || !f.isFolder(output) {
		return runFile{}, false, nil
	}
	var now Verified
	if verify != nil {
		now, err = verify(ctx, filepath.Join(f.path, output))
		if err != nil {
			return runFile{}, false, fmt.Errorf("run %s: what it left cannot be checked: %w", name, err)
		}
	}
	same, err := f.isLeft(ctx, name, withManifest(r.Artifacts, r.ManifestHash), now.Artifacts)
	return r, same && now.Failure == "" && err == nil, err
}

// succeeded is how a run ended, if it is written down that it ended well.
func (f *folder) succeeded(name string) (r runFile, ok bool) {
	text, err := fsx.ReadIn(f.root, filepath.Join(runFolder(name), RunName), maxRunFile)
	ok = err == nil && json.Unmarshal(text, &r) == nil && r.Schema == RunSchemaV1 && r.Status == StatusSucceeded && r.ManifestHash != ""
	return r, ok
}

// isLeft says that artifacts have the hashes that they had. seen are those of some that
// were read just now.
func (f *folder) isLeft(ctx context.Context, name string, artifacts, seen map[string]string) (bool, error) {
	for path, want := range artifacts {
		got, read := seen[path]
		if !read {
			var err error
			if got, err = f.hash(ctx, name, path); isGone(err) {
				return false, nil
			} else if err != nil {
				return false, fmt.Errorf("run %s: what it left cannot be checked: %w", name, err)
			}
		}
		if got != want {
			return false, nil
		}
	}
	return true, nil
}

// isGone says that there is nothing, or something else than a file.
func isGone(err error) bool {
	special := new(fsx.NotRegularError)
	return errors.Is(err, fs.ErrNotExist) || errors.As(err, &special) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, errOutside)
}

// errOutside is a name that no artifact has.
var errOutside = errors.New("leads out of the output folder")

func (f *folder) isFolder(name string) bool {
	info, err := f.root.Lstat(name)
	return err == nil && info.IsDir()
}

// hasSpec says that the spec of a run is what was written there.
func (f *folder) hasSpec(name string, spec []byte) bool {
	text, err := fsx.ReadIn(f.root, filepath.Join(runFolder(name), SpecName), int64(len(spec)))
	return err == nil && bytes.Equal(text, spec)
}

// manifestHash is the SHA-256 of what a run wrote as its manifest, 64 hexadecimal digits.
func (f *folder) manifestHash(ctx context.Context, name string) (string, error) {
	output := filepath.Join(runFolder(name), OutputName)
	info, err := f.root.Lstat(output)
	if err == nil && !info.IsDir() {
		err = errors.New(OutputName + " is " + fsx.Kind(info.Mode()))
	}
	if err != nil {
		return "", err
	}
	hash, err := f.hash(ctx, name, toolManifest)
	if err != nil {
		return "", fmt.Errorf("%s: %w", toolManifest, fsx.Cause(err))
	}
	return hash, nil
}

// hash is the SHA-256 of a regular file that a run left.
func (f *folder) hash(ctx context.Context, name, artifact string) (string, error) {
	artifact = filepath.FromSlash(artifact)
	if !filepath.IsLocal(artifact) {
		return "", errOutside
	}
	at := filepath.Join(runFolder(name), OutputName, artifact)
	file, _, err := fsx.OpenIn(f.root, at)
	if err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	return invoke.HashArtifact(ctx, filepath.Join(f.path, at))
}
