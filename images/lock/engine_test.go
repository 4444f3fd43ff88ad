package lock

import (
	"bytes"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/package-url/packageurl-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/imagestest"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/treetest"
)

func TestWriteSBOM(t *testing.T) {
	e := testEntry("debian")
	e.Packages = append(e.Packages, packages.Package{Kind: packages.Python, Name: "pluggy", Version: "1.0.0+repack"})
	var first, second bytes.Buffer
	require.NoError(t, WriteSBOM(&first, e))
	require.NoError(t, WriteSBOM(&second, e))
	assert.Equal(t, first.String(), second.String())
	treetest.Golden(t, "testdata/sbom.json", first.String())

	var bom cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(&first, cdx.BOMFileFormatJSON).Decode(&bom))
	require.Len(t, *bom.Components, len(e.Packages))
	refs := map[string]bool{}
	for i, c := range *bom.Components {
		purl, err := packageurl.FromString(c.PackageURL)
		require.NoError(t, err)
		assert.Equal(t, e.Packages[i].Name, purl.Name)
		assert.Equal(t, e.Packages[i].Version, purl.Version)
		assert.False(t, refs[c.BOMRef], "references are unique")
		refs[c.BOMRef] = true
	}
	assert.Regexp(t, `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}$`, bom.SerialNumber)

	e.Packages = nil
	second.Reset()
	require.NoError(t, WriteSBOM(&second, e))
	assert.NotContains(t, second.String(), bom.SerialNumber, "another list is another bill")
}

func TestPackageURL(t *testing.T) {
	for _, c := range []struct {
		p            packages.Package
		system, want string
	}{
		{packages.Package{Kind: packages.Deb, Name: "libc6", Version: "1:2.36+b1~x", Arch: "amd64"}, "debian 12", "pkg:deb/debian/libc6@1:2.36%2Bb1~x?arch=amd64"},
		{packages.Package{Kind: packages.Deb, Name: "a", Version: "1", Arch: "all"}, "ubuntu 22.04", "pkg:deb/ubuntu/a@1?arch=all"},
		{packages.Package{Kind: packages.Deb, Name: "a", Version: "1"}, "", "pkg:deb/debian/a@1"},
		{packages.Package{Kind: packages.Python, Name: "scikit-learn", Version: "1.2.1"}, "", "pkg:pypi/scikit-learn@1.2.1"},
		{packages.Package{Kind: packages.Conda, Name: "python", Version: "3.11"}, "", "pkg:conda/python@3.11"},
	} {
		assert.Equal(t, c.want, packageURL(c.p, c.system))
	}
}

// The packages of a locked image come from its lock; others are read.
func TestInspect(t *testing.T) {
	h, cat, small := imagestest.Small(t, "python3 3.11.2-1")
	eng := store.Docker{APIClient: h}
	d, err := Inspect(t.Context(), eng, cat, Lock{}, "small")
	require.NoError(t, err)
	assert.False(t, d.Locked)
	assert.Empty(t, d.LockedID, "the lock knows nothing of it")
	assert.Equal(t, "3.11.2", d.Python)
	assert.EqualValues(t, 1000, d.SizeBytes)
	assert.Contains(t, h.Calls, "export")

	h.Calls = nil
	l := Lock{}.With(d.Entry)
	h.Put(small.Tag(), idOf("elsewhere"), h.Images[idOf("small")])
	again, err := Inspect(t.Context(), eng, cat, l, "")
	require.NoError(t, err)
	assert.True(t, again.Locked)
	assert.Empty(t, again.LockedID)
	assert.Equal(t, idOf("elsewhere"), again.Entry.ID, "the ID is that of this engine")
	assert.NotContains(t, h.Calls, "export")

	h.Put(small.Tag(), idOf("other"), imagestest.ImageOf(t, "a 1"))
	other, err := Inspect(t.Context(), eng, cat, l, "small")
	require.NoError(t, err)
	assert.False(t, other.Locked)
	assert.Equal(t, idOf("small"), other.LockedID)
	list, err := images.List(t.Context(), eng, cat)
	require.NoError(t, err)
	for _, s := range list {
		want := map[string]string{"small": idOf("small")}[s.Name]
		assert.Equal(t, want, l.OtherID(s.Resolved), s.Name)
		assert.Empty(t, Lock{}.OtherID(s.Resolved))
	}
	assert.Equal(t, "deb a 1 all\n", other.Entry.Packages.Text())
	_, err = Inspect(t.Context(), eng, cat, l, "big-one")
	require.ErrorIs(t, err, images.ErrNotFound)
}

// Reading the lock is part of every run: a thousand packages must not be felt.
func BenchmarkParse(b *testing.B) {
	e := testEntry("debian")
	e.Packages = nil
	for _, prefix := range strings.Fields("a b c d e f g h i j") {
		for n := range 100 {
			e.Packages = append(e.Packages, packages.Package{Kind: packages.Deb, Name: prefix + hexOf(prefix)[:20] + string(rune('a'+n/26)) + string(rune('a'+n%26)), Version: "1.2.3-4+deb12u1", Arch: "amd64"})
		}
	}
	text, err := Lock{}.With(e).Encode()
	require.NoError(b, err)
	r := images.Resolved{Name: "debian", CatalogName: true, ID: e.ID, Content: e.Content, Platform: e.Platform}
	for b.Loop() {
		l, err := Parse(text, "images.lock")
		if err != nil || l.Check(r) != nil {
			b.Fatal(err)
		}
	}
}
