package images

import (
	"context"
	"strings"
)

// Details are what is known of one image that the engine has.
type Details struct {
	// Entry is what the lock holds, or would hold, of it; its ID is the one in
	// this engine.
	Entry LockEntry
	// Digest is the registry's digest, see [Resolved].
	Digest string
	// SizeBytes is what the engine reports: all layers together.
	SizeBytes int64
	// Locked says that the image is the locked one. The packages are then
	// those of the lock, else they were read from the image.
	Locked bool
	// LockedID is the ID in the lock if that holds another image of this name,
	// else empty.
	LockedID string
	// Python is the version of Python 3 that the image tells, empty if none.
	Python string
}

// Inspect tells what is known of an image; name is as for [Resolve]. It runs
// nothing of the image. The errors are those of [Pin].
func Inspect(ctx context.Context, eng Reader, cat Catalog, lock Lock, name string) (Details, error) {
	r, found, err := resolve(ctx, eng, cat, name)
	if err != nil {
		return Details{}, err
	}
	d := Details{Digest: r.Digest, SizeBytes: found.Size, LockedID: lock.otherID(r)}
	d.Locked = lock.Check(r) == nil
	if e, ok := lock.Lookup(r.Name); ok && e.Is(r) {
		d.Entry, d.Entry.ID = e, r.ID
	} else if d.Entry, err = Pin(ctx, eng, cat, name); err != nil {
		return Details{}, err
	}
	var env []string
	if found.Config != nil {
		env = found.Config.Env
	}
	d.Python = pythonVersion(env, d.Entry.Packages)
	return d, nil
}

// pythonVersion takes the version of Python from where its makers write it: the
// environment (images of Docker's library), conda's packages, Debian's.
func pythonVersion(env []string, packages Packages) string {
	for _, pair := range env {
		if version, ok := strings.CutPrefix(pair, "PYTHON_VERSION="); ok {
			return plainWord(version)
		}
	}
	version := ""
	for _, p := range packages {
		switch {
		case p.Kind == PackageConda && p.Name == "python":
			return p.Version
		case p.Kind == PackageDeb && p.Name == "python3":
			version, _, _ = strings.Cut(p.Version, "-")
		}
	}
	return version
}
