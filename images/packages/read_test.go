package packages

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A member is one member of a tar archive; without a type it is a file.
type member struct {
	name, body, link string
	kind             byte
}

func tarball(t testing.TB, members ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	require.NoError(t, writeMembers(&buf, members))
	return buf.Bytes()
}

func writeMembers(to io.Writer, members []member) error {
	w := tar.NewWriter(to)
	for _, m := range members {
		header := &tar.Header{Name: m.name, Linkname: m.link, Size: int64(len(m.body)), Mode: 0o644, Typeflag: m.kind}
		if m.kind == 0 {
			header.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.WriteString(w, m.body); err != nil {
			return err
		}
	}
	return w.Close()
}

const oneDeb = "Package: a\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n"

func TestRead(t *testing.T) {
	got, err := Read(bytes.NewReader(tarball(t,
		member{name: "etc/os-release", kind: tar.TypeSymlink, link: "../usr/lib/os-release"},
		member{name: "usr/lib/os-release", body: "ID=debian\nVERSION_ID=12\n"},
		member{name: "./var/lib/dpkg/status", body: oneDeb},
		member{name: "home/var/lib/dpkg/status", body: strings.ReplaceAll(oneDeb, ": a", ": elsewhere")},
		member{name: "usr/lib/python3/dist-packages/p-1.dist-info/METADATA", body: "Name: P\nVersion: 1\n"},
		member{name: "usr/lib/python3/dist-packages/p-1.dist-info/RECORD", body: "x"},
		member{name: "usr/lib/python3/dist-packages/p/METADATA", body: "Name: no\n"},
		member{name: "opt/site-packages/p-1.dist-info/METADATA", kind: tar.TypeLink, link: "usr/lib/python3/dist-packages/p-1.dist-info/METADATA"},
		member{name: "opt/site-packages/q-2.dist-info/METADATA", kind: tar.TypeLink, link: "cache/blob"},
		member{name: "opt/conda/conda-meta/r-3-0.json", kind: tar.TypeLink, link: "cache/blob"},
		member{name: "opt/site-packages/s.egg-info", kind: tar.TypeDir},
		member{name: "opt/site-packages/t.egg-info", kind: tar.TypeFifo},
		member{name: "opt/site-packages/u-4.egg-info", body: strings.Repeat("long: line\n", maxPythonHead)},
	)))
	require.NoError(t, err)
	assert.Equal(t, "debian 12", got.System)
	assert.Equal(t, "conda r 3\ndeb a 1 all\npython p 1\npython q 2\npython u 4\n", got.Packages.Text())
}

func TestReadRefuses(t *testing.T) {
	whole := tarball(t, member{name: "var/lib/dpkg/status", body: strings.Repeat(oneDeb+"\n", 100)})
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"cut off":                {whole[:1000], "unexpected EOF"},
		"garbage":                {bytes.Repeat([]byte("garbage "), 1000), "invalid tar header"},
		"a long system":          {tarball(t, member{name: "etc/os-release", body: strings.Repeat("x\n", maxSystemFile)}), "more than 65536 bytes"},
		"a link as the database": {tarball(t, member{name: "var/lib/dpkg/status", kind: tar.TypeLink, link: "x"}), "is a hard link"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(bytes.NewReader(c.data))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "reading the file system of the image")
			assert.Empty(t, got)
		})
	}
}

// Whatever an image holds, a list comes out that can be written and read back.
func FuzzRead(f *testing.F) {
	f.Add(tarball(f, member{name: "var/lib/dpkg/status", body: oneDeb}))
	f.Add(tarball(f, member{name: "x/site-packages/p-1.dist-info/METADATA", body: "Name: P\n"}, member{name: "conda-meta/a-1-0.json", body: "{}"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		back, err := Parse(got.Packages.Text())
		require.NoError(t, err)
		require.Equal(t, got.Packages, back)
	})
}
