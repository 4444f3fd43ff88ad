package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// An archive of ours is what `docker save` writes, with the lock entry of the
// image as its first member. Engines ignore that when they load it.
const lockMember = "evalbox.lock.yaml"

// maxManifest bounds the manifest in an archive, which is not trusted.
const maxManifest = 1 << 20

// An ArchiveError says what is wrong with an archive.
type ArchiveError struct {
	// Source is the name of the file.
	Source string
	Err    error
}

func (e *ArchiveError) Error() string { return fmt.Sprintf("archive %s: %v", e.Source, e.Err) }

func (e *ArchiveError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *ArchiveError) Hint() string {
	if other, ok := errors.AsType[*hintedError](e.Err); ok {
		return other.hint
	}
	return "make one with: sandbox image export NAME FILE"
}

// writeArchive copies what the engine saves behind the text of a lock.
func writeArchive(w io.Writer, lockText []byte, saved io.Reader) error {
	out := tar.NewWriter(w)
	header := &tar.Header{Name: lockMember, Mode: 0o644, Size: int64(len(lockText)), Typeflag: tar.TypeReg}
	if err := writeMember(out, header, bytes.NewReader(lockText)); err != nil {
		return err
	}
	in := tar.NewReader(saved)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err == nil {
			err = writeMember(out, header, in)
		}
		if err != nil {
			return err
		}
	}
}

func writeMember(out *tar.Writer, header *tar.Header, body io.Reader) error {
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(out, body)
	return err
}

// openArchive reads the lock at the beginning of an archive, and its one entry.
func openArchive(r io.Reader, source string) (*tar.Reader, LockEntry, error) {
	in := tar.NewReader(r)
	header, err := in.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, LockEntry{}, errors.New("is empty")
	case err != nil:
		return nil, LockEntry{}, fmt.Errorf("is not a tar archive: %w", truncated(err))
	case header.Name != lockMember || header.Typeflag != tar.TypeReg:
		return nil, LockEntry{}, fmt.Errorf("does not begin with %s: it is not one of ours", lockMember)
	case header.Size > maxLockBytes:
		return nil, LockEntry{}, fmt.Errorf("%s is larger than %d bytes", lockMember, maxLockBytes)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, LockEntry{}, truncated(err)
	}
	lock, err := LoadLock(text, source+": "+lockMember)
	if err != nil {
		return nil, LockEntry{}, err
	}
	names := lock.Names()
	if len(names) != 1 {
		return nil, LockEntry{}, fmt.Errorf("%s has %d entries, want 1", lockMember, len(names))
	}
	entry, _ := lock.Lookup(names[0])
	return in, entry, nil
}

// truncated says what the end of a file in the middle means.
func truncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("ends in the middle: it was cut off")
	}
	return err
}

// passImage copies the rest of an archive for the engine to load, and lets
// through only what is part of one image without a name: the names in an archive
// would become names in the engine before anything was checked.
func passImage(w io.Writer, in *tar.Reader) error {
	out := tar.NewWriter(w)
	seen := memberNames{lockMember: true}
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return truncated(err)
		}
		if err := seen.add(header); err != nil {
			return err
		}
		// Of the header only what was checked gets through.
		header = &tar.Header{Typeflag: header.Typeflag, Name: header.Name, Linkname: header.Linkname, Mode: 0o755, Size: header.Size}
		var body io.Reader = in
		switch header.Name {
		case "repositories", "index.json", "oci-layout":
			continue // they only give names, or are another form of the manifest
		case "manifest.json":
			text, err := nameless(in, header.Size)
			if err != nil {
				return err
			}
			header.Size, body = int64(len(text)), bytes.NewReader(text)
		}
		if err := writeMember(out, header, body); err != nil {
			return truncated(err)
		}
	}
	if !seen["manifest.json"] {
		return errors.New("has no member manifest.json: it was cut off, or is not one of ours")
	}
	return out.Close()
}

// nameless takes the names out of a manifest of one image.
func nameless(r io.Reader, size int64) ([]byte, error) {
	if size > maxManifest {
		return nil, fmt.Errorf("manifest.json is larger than %d bytes", maxManifest)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, truncated(err)
	}
	var all []map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("manifest.json has %d images, want 1", len(all))
	}
	// Keys are read without regard to case.
	for key := range all[0] {
		if !knownManifestKey(key) {
			delete(all[0], key)
		}
	}
	all[0]["RepoTags"] = json.RawMessage("null")
	return json.Marshal(all)
}

func knownManifestKey(key string) bool {
	switch key {
	case "Config", "Layers", "LayerSources":
		return true
	}
	return false
}
