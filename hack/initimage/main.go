// Initimage writes the image that carries evalbox's own programs into pods, as a file of docker
// save. The image holds nothing but /init, which is PID 1, and /porter. The same programs give the
// same bytes.
package main

import (
	"archive/tar"
	"bytes"
	_ "crypto/sha256" // of the digests
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

func main() {
	arch := flag.String("arch", "amd64", "the `architecture`: amd64 or arm64")
	porter := flag.String("porter", "", "the `file` that becomes /porter")
	out := flag.String("o", "", "the `file` to write")
	flag.Parse()
	if err := run(*arch, *porter, *out); err != nil {
		fmt.Fprintln(os.Stderr, "initimage:", err)
		os.Exit(1)
	}
}

func run(arch, porter, out string) error {
	program, err := os.ReadFile(porter)
	if err != nil {
		return err
	}
	image, err := build(arch, program)
	if err != nil {
		return err
	}
	return os.WriteFile(out, image, 0o644)
}

// A file is one of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// build returns the image for an architecture.
func build(arch string, porter []byte) ([]byte, error) {
	initProgram, err := wire.Init(arch)
	if err != nil {
		return nil, err
	}
	layer, err := pack(file{"init", 0o555, initProgram}, file{"porter", 0o555, porter})
	if err != nil {
		return nil, err
	}
	created := time.Unix(0, 0).UTC()
	config, err := json.Marshal(ocispec.Image{
		Created:  &created,
		Platform: ocispec.Platform{OS: "linux", Architecture: arch},
		Config: ocispec.ImageConfig{
			Entrypoint: []string{"/init"},
			Labels:     map[string]string{ocispec.AnnotationVersion: wire.BuildID()},
		},
		RootFS:  ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
		History: []ocispec.History{{Created: &created, CreatedBy: "evalbox hack/initimage"}},
	})
	if err != nil {
		return nil, err
	}
	configName, layerName := digest.FromBytes(config).Encoded()+".json", digest.FromBytes(layer).Encoded()+"/layer.tar"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{"evalbox/init:" + wire.BuildID()[:12]}, "Layers": []string{layerName},
	}})
	if err != nil {
		return nil, err
	}
	return pack(file{configName, 0o444, config}, file{layerName, 0o444, layer}, file{"manifest.json", 0o444, manifest})
}

// pack returns an archive of files of root, with fixed times.
func pack(files ...file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, bytes.NewReader(f.data)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
