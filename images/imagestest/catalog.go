package imagestest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
)

// Catalog is the catalog of images/testdata, for a package directly below images.
func Catalog(t testing.TB) images.Catalog {
	t.Helper()
	data, err := os.ReadFile("../testdata/valid/full.yaml")
	require.NoError(t, err)
	cat, err := images.LoadCatalog(data, "full.yaml")
	require.NoError(t, err)
	return cat
}

// Small is an engine that has the image "small" of the catalog, with these packages.
func Small(t testing.TB, packages ...string) (*Engine, images.Catalog, images.Entry) {
	t.Helper()
	cat := Catalog(t)
	small, ok := cat.Lookup("small")
	require.True(t, ok)
	e := New(t)
	e.Put(small.Tag(), IDOf("small"), ImageOf(t, packages...))
	return e, cat, small
}

// HexOf is the SHA-256 of a text.
func HexOf(text string) string { return digest.FromString(text).Encoded() }

// IDOf is the ID of an image.
func IDOf(name string) string { return "sha256:" + HexOf(name) }

// ImageOf is an image of Debian with packages as "NAME VERSION".
func ImageOf(t testing.TB, packages ...string) Image {
	t.Helper()
	var status strings.Builder
	for _, p := range packages {
		name, version, _ := strings.Cut(p, " ")
		fmt.Fprintf(&status, "Package: %s\nStatus: install ok installed\nVersion: %s\nArchitecture: all\n\n", name, version)
	}
	return Image{Root: Tar(t,
		Member{Name: "usr/lib/os-release", Body: "ID=debian\nVERSION_ID=12\n"},
		Member{Name: "var/lib/dpkg/status", Body: status.String()},
	)}
}

// HintOf is what an error says to do about it.
func HintOf(t testing.TB, err error) string {
	t.Helper()
	var knows interface{ Hint() string }
	require.ErrorAs(t, err, &knows)
	return knows.Hint()
}

// A Member is one member of a tar archive: without a kind it is a link if it has a target,
// or a file.
type Member struct {
	Name, Body, Link string
	Kind             byte
}

// Tar is an archive.
func Tar(t testing.TB, members ...Member) []byte {
	t.Helper()
	var archive bytes.Buffer
	require.NoError(t, writeTar(&archive, members))
	return archive.Bytes()
}

func writeTar(to io.Writer, members []Member) error {
	w := tar.NewWriter(to)
	for _, m := range members {
		header := &tar.Header{Name: m.Name, Linkname: m.Link, Size: int64(len(m.Body)), Mode: 0o644, Typeflag: m.Kind}
		switch {
		case m.Kind == 0 && m.Link != "":
			header.Typeflag = tar.TypeSymlink
		case m.Kind == 0:
			header.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.WriteString(w, m.Body); err != nil {
			return err
		}
	}
	return w.Close()
}
