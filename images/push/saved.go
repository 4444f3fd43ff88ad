package push

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/evalbox/evalbox/images"
)

// Bounds of an archive, which is not trusted. An image has at most 127 layers.
const (
	maxMembers   = 2000
	maxText      = 4 << 20 // of an index, a manifest or a configuration, in bytes
	maxManifests = 100     // in an index, with those below it
)

// members are the regular files of a tar archive. Engines write a layer that an image has twice
// as a link.
type members struct {
	ctx   context.Context //nolint:containedctx // the library that reads the layers passes none
	files map[string]*io.SectionReader
	links map[string]string
}

// readMembers finds the files of an archive without reading them.
func readMembers(ctx context.Context, file *os.File) (members, error) {
	m := members{ctx, map[string]*io.SectionReader{}, map[string]string{}}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return m, err
	}
	for in := tar.NewReader(file); ; {
		header, err := in.Next()
		switch {
		case errors.Is(err, io.EOF) && len(m.files) == 0:
			return m, errors.New("is empty")
		case errors.Is(err, io.EOF):
			return m, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return m, errors.New("ends in the middle: it was cut off")
		case err != nil:
			return m, fmt.Errorf("is not a tar archive: %w", err)
		case ctx.Err() != nil:
			return m, ctx.Err()
		}
		name := path.Clean(header.Name)
		if _, twice := m.files[name]; twice || m.links[name] != "" {
			return m, fmt.Errorf("has two members %.100q", name)
		}
		if len(m.files)+len(m.links) >= maxMembers {
			return m, fmt.Errorf("has more than %d members", maxMembers)
		}
		switch header.Typeflag {
		case tar.TypeReg:
			at, err := file.Seek(0, io.SeekCurrent)
			if err != nil {
				return m, err
			}
			m.files[name] = io.NewSectionReader(file, at, header.Size)
		case tar.TypeSymlink:
			m.links[name] = path.Join(path.Dir(name), header.Linkname) //nolint:gosec // names a member, never a file
		}
	}
}

// find returns a member, or nil. A link is followed once.
func (m members) find(name string) *io.SectionReader {
	if to, link := m.links[name]; link {
		name = to
	}
	return m.files[name]
}

// blob returns the member with this digest in an OCI layout, or nil.
func (m members) blob(h v1.Hash) *io.SectionReader {
	return m.find(path.Join("blobs", h.Algorithm, h.Hex))
}

// text reads a short member.
func (m members) text(name string) ([]byte, error) {
	found := m.find(path.Clean(name))
	switch {
	case found == nil:
		return nil, fmt.Errorf("has no member %.100q: it was cut off, or is not a saved image", name)
	case found.Size() > maxText:
		return nil, fmt.Errorf("%.100q is larger than %d bytes", name, maxText)
	}
	return io.ReadAll(m.open(found))
}

// open reads a member from its beginning, until ctx ends.
func (m members) open(member *io.SectionReader) io.ReadCloser {
	return io.NopCloser(&endsWith{m.ctx, io.NewSectionReader(member, 0, member.Size())})
}

type endsWith struct {
	ctx context.Context //nolint:containedctx // as above
	r   io.Reader
}

func (e *endsWith) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.r.Read(p)
}

// saved is one image of an archive. Its methods without a comment are those of the library.
type saved struct {
	config      *v1.ConfigFile
	rawConfig   []byte
	manifest    *v1.Manifest
	rawManifest []byte
	blobs       map[v1.Hash]partial.CompressedLayer
}

func (s *saved) RawConfigFile() ([]byte, error)      { return s.rawConfig, nil }
func (s *saved) RawManifest() ([]byte, error)        { return s.rawManifest, nil }
func (s *saved) MediaType() (types.MediaType, error) { return s.manifest.MediaType, nil }

func (s *saved) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	if s.blobs[h] == nil {
		return nil, fmt.Errorf("there is no layer %s", h)
	}
	return s.blobs[h], nil
}

// layers are the digests of the unpacked layers.
func (s *saved) layers() (all []string) {
	for _, id := range s.config.RootFS.DiffIDs {
		all = append(all, id.String())
	}
	return all
}

func (s *saved) platform() string {
	return strings.TrimSuffix(path.Join(s.config.OS, s.config.Architecture, s.config.Variant), "/")
}

// size is what the image takes in a registry, in bytes.
func (s *saved) size() int64 {
	size := s.manifest.Config.Size
	for _, layer := range s.manifest.Layers {
		size += layer.Size
	}
	return size
}

// open finds the one image of an archive; if a platform is given, the one for that. The file is
// read until the image is no longer used. A manifest with compressed layers is kept, so that the
// image keeps its digest; otherwise the layers are compressed, and the same archive gives the
// same digest.
func open(ctx context.Context, file *os.File, platform string) (*saved, error) {
	m, err := readMembers(ctx, file)
	if err != nil {
		return nil, err
	}
	var found []*candidate
	if m.find("index.json") != nil {
		found, err = m.fromIndex()
	} else {
		found, err = m.fromManifest()
	}
	if err != nil {
		return nil, err
	}
	var held []string
	var one *candidate
	for _, c := range found {
		if p := images.PlainPlatform(c.platform()); platform == "" || p == platform {
			one = c
			held = append(held, p)
		}
	}
	if len(held) != 1 {
		return nil, fmt.Errorf("holds %d images %q, want 1", len(held), held)
	}
	return one.complete(m)
}

// A candidate is an image of an archive whose layers were not read.
type candidate struct {
	saved

	layerFiles []*io.SectionReader
}

// newCandidate reads a configuration.
func (m members) newCandidate(config string) (*candidate, error) {
	text, err := m.text(config)
	if err != nil {
		return nil, err
	}
	c := &candidate{saved: saved{rawConfig: text, blobs: map[v1.Hash]partial.CompressedLayer{}}}
	if c.config, err = v1.ParseConfigFile(bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("%.100q: %w", config, err)
	}
	return c, nil
}

// addLayer adds the next layer.
func (c *candidate) addLayer(name string, file *io.SectionReader) error {
	if file == nil {
		return fmt.Errorf("has no member %.100q: it was cut off, or is not a saved image", name)
	}
	c.layerFiles = append(c.layerFiles, file)
	return nil
}

// fromManifest reads the images of docker save.
func (m members) fromManifest() (all []*candidate, err error) {
	text, err := m.text("manifest.json")
	if err != nil {
		return nil, err
	}
	var listed []struct {
		Config string   `json:"Config"`
		Layers []string `json:"Layers"`
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	if len(listed) > maxManifests {
		return nil, fmt.Errorf("manifest.json has more than %d images", maxManifests)
	}
	for _, each := range listed {
		c, err := m.newCandidate(each.Config)
		if err != nil {
			return nil, err
		}
		for _, name := range each.Layers {
			if err := c.addLayer(name, m.find(path.Clean(name))); err != nil {
				return nil, err
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// fromIndex reads the images of an OCI layout. Indexes name images of other platforms, which
// need not be in the archive, and attestations, which are not images.
func (m members) fromIndex() (all []*candidate, err error) {
	text, err := m.text("index.json")
	if err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	seen := map[v1.Hash]bool{}
	for todo := index.Manifests; len(todo) > 0; todo = todo[1:] {
		next := todo[0]
		if seen[next.Digest] || m.blob(next.Digest) == nil || next.Platform != nil && next.Platform.OS == "unknown" {
			continue
		}
		if seen[next.Digest] = true; len(seen) > maxManifests {
			return nil, fmt.Errorf("has more than %d manifests", maxManifests)
		}
		text, err := m.checked(next)
		if err != nil {
			return nil, err
		}
		if next.MediaType.IsIndex() {
			below, err := v1.ParseIndexManifest(bytes.NewReader(text))
			if err != nil {
				return nil, fmt.Errorf("index %s: %w", next.Digest, err)
			}
			todo = append(todo, below.Manifests...)
			continue
		}
		if !next.MediaType.IsImage() {
			continue
		}
		c, err := m.fromImage(next, text)
		if err != nil {
			return nil, fmt.Errorf("manifest %s: %w", next.Digest, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// fromImage reads the image of a manifest.
func (m members) fromImage(desc v1.Descriptor, text []byte) (*candidate, error) {
	manifest, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if _, err := m.checked(manifest.Config); err != nil {
		return nil, err
	}
	c, err := m.newCandidate(path.Join("blobs", manifest.Config.Digest.Algorithm, manifest.Config.Digest.Hex))
	if err != nil {
		return nil, err
	}
	for _, layer := range manifest.Layers {
		if err := c.addLayer(layer.Digest.String(), m.blob(layer.Digest)); err != nil {
			return nil, err
		}
	}
	manifest.MediaType = desc.MediaType
	c.manifest, c.rawManifest = manifest, text
	return c, nil
}

// checked reads a short blob, which must have its digest.
func (m members) checked(desc v1.Descriptor) ([]byte, error) {
	text, err := m.text(path.Join("blobs", desc.Digest.Algorithm, desc.Digest.Hex))
	if err != nil {
		return nil, err
	}
	if have, _, err := v1.SHA256(bytes.NewReader(text)); err != nil || have != desc.Digest {
		return nil, errors.Join(err, fmt.Errorf("the blob %s has another digest, %s", desc.Digest, have))
	}
	return text, nil
}

// complete reads the layers, which must be those of the configuration.
func (c *candidate) complete(m members) (*saved, error) {
	ids := c.config.RootFS.DiffIDs
	if len(ids) != len(c.layerFiles) {
		return nil, fmt.Errorf("has %d layers, and its configuration lists %d", len(c.layerFiles), len(ids))
	}
	manifest := &v1.Manifest{SchemaVersion: 2, MediaType: types.DockerManifestSchema2}
	config, err := partial.ConfigLayer(&c.saved)
	if err != nil {
		return nil, err
	}
	if manifest.Config, err = descriptor(config, types.DockerConfigJSON); err != nil {
		return nil, err
	}
	keep := c.manifest != nil
	for i, file := range c.layerFiles {
		layer, compressed, err := m.layer(file, ids[i])
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, err)
		}
		desc, err := descriptor(layer, types.DockerLayer)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, err)
		}
		keep = keep && compressed && desc.Digest == c.manifest.Layers[i].Digest
		c.blobs[desc.Digest] = layer
		manifest.Layers = append(manifest.Layers, desc)
	}
	if keep {
		return &c.saved, nil
	}
	c.manifest = manifest
	if c.rawManifest, err = json.Marshal(manifest); err != nil {
		return nil, err
	}
	return &c.saved, nil
}

// descriptor describes a blob in a manifest.
func descriptor(layer partial.CompressedLayer, kind types.MediaType) (desc v1.Descriptor, err error) {
	desc.MediaType = kind
	if desc.Digest, err = layer.Digest(); err != nil {
		return desc, err
	}
	desc.Size, err = layer.Size()
	return desc, err
}

// magics are the first bytes of compressed layers: gzip and zstd.
var magics = [][]byte{{0x1f, 0x8b}, {0x28, 0xb5, 0x2f, 0xfd}}

// layer reads a layer. One that is not compressed will be.
func (m members) layer(file *io.SectionReader, id v1.Hash) (layer v1.Layer, compressed bool, err error) {
	start := make([]byte, 4)
	if _, err := file.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	compressed = slices.ContainsFunc(magics, func(magic []byte) bool { return bytes.HasPrefix(start, magic) })
	b := &blob{m: m, file: file, id: id}
	if compressed {
		if b.digest, b.size, err = v1.SHA256(m.open(file)); err != nil {
			return nil, false, err
		}
		layer, err = partial.CompressedToLayer(struct{ partial.CompressedLayer }{b})
	} else {
		layer, err = partial.UncompressedToLayer(b)
	}
	if err != nil {
		return nil, false, err
	}
	unpacked, err := layer.Uncompressed()
	if err != nil {
		return nil, false, err
	}
	have, _, err := v1.SHA256(unpacked)
	if err = errors.Join(err, unpacked.Close()); err != nil {
		return nil, false, err
	}
	if have != id {
		return nil, false, fmt.Errorf("is %s, and the configuration lists %s", have, id)
	}
	return layer, compressed, nil
}

// blob is a layer in an archive.
type blob struct {
	m      members
	file   *io.SectionReader
	id     v1.Hash
	digest v1.Hash
	size   int64
}

func (b *blob) Digest() (v1.Hash, error)             { return b.digest, nil }
func (b *blob) DiffID() (v1.Hash, error)             { return b.id, nil }
func (b *blob) Size() (int64, error)                 { return b.size, nil }
func (b *blob) MediaType() (types.MediaType, error)  { return types.DockerLayer, nil }
func (b *blob) Compressed() (io.ReadCloser, error)   { return b.m.open(b.file), nil }
func (b *blob) Uncompressed() (io.ReadCloser, error) { return b.m.open(b.file), nil }
