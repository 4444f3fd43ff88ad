// Package archive moves a locked image between engines: [Export] writes it with its lock
// entry as one tar archive, and [Import] reads that, which is not trusted.
package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"sync"

	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/store"
)

// An archive is the output of `docker save`, with the lock entry of the image as its first
// member. Engines ignore that member when they load the archive.
const lockMember = "evalbox.lock.yaml"

// maxManifest bounds the manifest in an archive, which is not trusted.
const maxManifest = 1 << 20

// bad returns the error of a malformed archive.
func bad(source string, err error) error {
	return fmt.Errorf("archive %s: %w", source, images.WithHint(err, "make one with: sandbox image export NAME FILE"))
}

// Export writes a locked image with its lock entry as one tar archive, for [Import];
// `docker load` understands it too. An image that is not the locked one is a
// [*lock.UnlockedError]. An image that is known only by its digest is refused: an engine
// cannot give it that name.
func Export(ctx context.Context, api client.APIClient, cat images.Catalog, l lock.Lock, name string, w io.Writer) error {
	eng := store.Docker{APIClient: api}
	r, err := images.Resolve(ctx, eng, cat, name)
	if err != nil {
		return err
	}
	e, err := l.Require(r.Name)
	if err != nil {
		return err
	}
	if !e.Is(r) {
		refused := &lock.UnlockedError{Name: r.Name, ID: r.ID, LockedID: e.ID, Source: l.Source, CatalogName: r.CatalogName}
		return images.WithHint(refused, "see what differs with: sandbox image verify "+r.Name+"; accept it with: sandbox image lock "+r.Name)
	}
	if images.IsPinned(r.Reference) {
		return images.WithHint(fmt.Errorf("image %s: an engine that imports it cannot name it by a digest", r.Name),
			fmt.Sprintf("give it a name, and lock and export that: docker tag %s NAME:TAG", r.Reference))
	}
	text, err := lock.Lock{}.With(e).Encode()
	if err != nil {
		return err
	}
	saved, err := eng.ImageSave(ctx, []string{r.Reference})
	if err != nil {
		return fmt.Errorf("image %s: saving it: %w", r.Name, err)
	}
	defer saved.Close()
	if err := writeArchive(w, text, saved); err != nil {
		return fmt.Errorf("image %s: saving it: %w", r.Name, err)
	}
	return nil
}

// writeArchive writes the text of a lock, and then the archive that the engine saved.
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
func openArchive(r io.Reader, source string) (*tar.Reader, lock.Entry, error) {
	in := tar.NewReader(r)
	header, err := in.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, lock.Entry{}, errors.New("is empty")
	case err != nil:
		return nil, lock.Entry{}, fmt.Errorf("is not a tar archive: %w", truncated(err))
	case header.Name != lockMember || header.Typeflag != tar.TypeReg:
		return nil, lock.Entry{}, fmt.Errorf("does not begin with %s: it is not one of ours", lockMember)
	case header.Size > lock.MaxBytes:
		return nil, lock.Entry{}, fmt.Errorf("%s is larger than %d bytes", lockMember, lock.MaxBytes)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, lock.Entry{}, truncated(err)
	}
	l, err := lock.Parse(text, source+": "+lockMember)
	if err != nil {
		return nil, lock.Entry{}, err
	}
	names := l.Names()
	if len(names) != 1 {
		return nil, lock.Entry{}, fmt.Errorf("%s has %d entries, want 1", lockMember, len(names))
	}
	entry, _ := l.Lookup(names[0])
	return in, entry, nil
}

// truncated explains the error of a file that ends too early.
func truncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("ends in the middle: it was cut off")
	}
	return err
}

// passImage copies the rest of an archive for the engine to load. Only the parts of one image
// without a name get through: the names in an archive would become names in the engine
// before the image was checked.
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
		// Only the checked parts of the header get through.
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
		return errors.New("has no member manifest.json: it was cut off, or evalbox did not write it")
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
	maps.DeleteFunc(all[0], func(key string, _ json.RawMessage) bool {
		return !slices.Contains([]string{"Config", "Layers", "LayerSources"}, key)
	})
	all[0]["RepoTags"] = json.RawMessage("null")
	return json.Marshal(all)
}

// maxMembers bounds the members of an archive. An image has at most 127 layers.
const maxMembers = 2000

// The members of a saved image: older engines write a directory for each layer, newer ones
// blobs. An engine follows links while it unpacks an archive, so that "manifest.json" can be
// written in several ways. So only these names get through, and each once. The one link is
// that of a layer which the image has twice, and no name continues below it.
var (
	memberFiles = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(manifest\.json|repositories|index\.json|oci-layout|[0-9a-f]{64}\.json|[0-9a-f]{64}/(VERSION|json|layer\.tar)|blobs/sha256/[0-9a-f]{64})$`)
	})
	memberDirs  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9a-f]{64}|blobs|blobs/sha256)/$`) })
	memberLinks = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[0-9a-f]{64}/layer\.tar -> \.\./[0-9a-f]{64}/layer\.tar$`)
	})
)

// memberNames are the members of an archive so far.
type memberNames map[string]bool

// add refuses a member that no saved image has.
func (seen memberNames) add(header *tar.Header) error {
	name := header.Name
	known := false
	switch header.Typeflag {
	case tar.TypeReg:
		known = memberFiles().MatchString(name)
	case tar.TypeDir:
		known = memberDirs().MatchString(name)
	case tar.TypeSymlink:
		known = memberLinks().MatchString(name + " -> " + header.Linkname)
	}
	switch {
	case seen[name]:
		return fmt.Errorf("has two members %.100q", name)
	case !known:
		return fmt.Errorf("%.100q (type %q) does not belong to a saved image", name, header.Typeflag)
	case len(seen) >= maxMembers:
		return fmt.Errorf("has more than %d members", maxMembers)
	}
	seen[name] = true
	return nil
}
