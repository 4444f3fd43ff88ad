package packages

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images/imagestest"
)

const oneDeb = "Package: a\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n"

func TestRead(t *testing.T) {
	got, err := Read(bytes.NewReader(imagestest.Tar(t,
		imagestest.Member{Name: "etc/os-release", Kind: tar.TypeSymlink, Link: "../usr/lib/os-release"},
		imagestest.Member{Name: "usr/lib/os-release", Body: "ID=debian\nVERSION_ID=12\n"},
		imagestest.Member{Name: "./var/lib/dpkg/status", Body: oneDeb},
		imagestest.Member{Name: "home/var/lib/dpkg/status", Body: strings.ReplaceAll(oneDeb, ": a", ": elsewhere")},
		imagestest.Member{Name: "usr/lib/python3/dist-packages/p-1.dist-info/METADATA", Body: "Name: P\nVersion: 1\n"},
		imagestest.Member{Name: "usr/lib/python3/dist-packages/p-1.dist-info/RECORD", Body: "x"},
		imagestest.Member{Name: "usr/lib/python3/dist-packages/p/METADATA", Body: "Name: no\n"},
		imagestest.Member{Name: "opt/site-packages/p-1.dist-info/METADATA", Kind: tar.TypeLink, Link: "usr/lib/python3/dist-packages/p-1.dist-info/METADATA"},
		imagestest.Member{Name: "opt/site-packages/q-2.dist-info/METADATA", Kind: tar.TypeLink, Link: "cache/blob"},
		imagestest.Member{Name: "opt/conda/conda-meta/r-3-0.json", Kind: tar.TypeLink, Link: "cache/blob"},
		imagestest.Member{Name: "opt/site-packages/s.egg-info", Kind: tar.TypeDir},
		imagestest.Member{Name: "opt/site-packages/t.egg-info", Kind: tar.TypeFifo},
		imagestest.Member{Name: "opt/site-packages/u-4.egg-info", Body: strings.Repeat("long: line\n", maxPythonHead)},
	)))
	require.NoError(t, err)
	assert.Equal(t, "debian 12", got.System)
	assert.Equal(t, "conda r 3\ndeb a 1 all\npython p 1\npython q 2\npython u 4\n", got.Packages.Text())
}

func TestReadRefuses(t *testing.T) {
	whole := imagestest.Tar(t, imagestest.Member{Name: "var/lib/dpkg/status", Body: strings.Repeat(oneDeb+"\n", 100)})
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"cut off":                {whole[:1000], "unexpected EOF"},
		"garbage":                {bytes.Repeat([]byte("garbage "), 1000), "invalid tar header"},
		"a long system":          {imagestest.Tar(t, imagestest.Member{Name: "etc/os-release", Body: strings.Repeat("x\n", maxSystemFile)}), "more than 65536 bytes"},
		"a link as the database": {imagestest.Tar(t, imagestest.Member{Name: "var/lib/dpkg/status", Kind: tar.TypeLink, Link: "x"}), "is a hard link"},
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
	f.Add(imagestest.Tar(f, imagestest.Member{Name: "var/lib/dpkg/status", Body: oneDeb}))
	f.Add(imagestest.Tar(f, imagestest.Member{Name: "x/site-packages/p-1.dist-info/METADATA", Body: "Name: P\n"}, imagestest.Member{Name: "conda-meta/a-1-0.json", Body: "{}"}))
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
