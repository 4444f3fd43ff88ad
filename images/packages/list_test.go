package packages

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseDpkgStatus(t *testing.T) {
	status := `Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 Version: 0 is text that goes on
Conffiles:
 /etc/ld.so.conf.d/x86_64-linux-gnu.conf d4e7a7b88a71b5ffd9e2644e71a0cfab

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: half
Status: install ok half-configured
Version: 2

Package: tzdata
Status: install ok installed
Architecture: all
Version: 2025b-0+deb12u2
Version: 9 is a second one


Package: silent
Status: install ok installed
`
	got, err := parseDpkgStatus(strings.NewReader(status))
	require.NoError(t, err)
	assert.Equal(t, []Package{
		{Deb, "libc6", "2.36-9+deb12u10", "amd64"},
		{Deb, "tzdata", "2025b-0+deb12u2", "all"},
		{Deb, "silent", "unknown", ""},
	}, got)
	for name, text := range map[string]string{
		"empty": "", "binary": "\x00\xff\n\n\x01", "no status": "Package: a\nVersion: 1\n", "only colons": ":::\n:\n",
		"a long line": "Package: " + strings.Repeat("x", 1<<20),
	} {
		got, err := parseDpkgStatus(strings.NewReader(text))
		require.NoError(t, err, name)
		assert.Empty(t, got, name)
	}
}

func TestParsePythonMetadata(t *testing.T) {
	const folder = "usr/lib/python3/dist-packages/"
	for _, c := range []struct{ name, file, text, want string }{
		{"wheel", "Foo_Bar-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: Foo.Bar\nVersion: 1.2\n\nName: body\n", "python foo-bar 1.2"},
		{"windows line ends", "a-1.dist-info/METADATA", "Name: a\r\nVersion: 2\r\n\r\n", "python a 2"},
		{"egg directory", "numpy-1.24.2.egg-info/PKG-INFO", "Name: numpy\nVersion: 1.24.2", "python numpy 1.24.2"},
		{"egg file without content", "six-1.16.0-py3.11.egg-info", "", "python six 1.16.0"},
		{"no version", "odd-3.dist-info/METADATA", "Name: odd\n", "python odd 3"},
		{"nothing at all", "odd.dist-info/METADATA", "", "python odd unknown"},
		{"not even a name", ".dist-info/METADATA", "", "python unknown unknown"},
		{"hostile", "x.dist-info/METADATA", "Name: a b\x1b[2J\nVersion: 1\t2\n", "python a_b__2j 1_2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Regexp(t, pythonFile(), folder+c.file)
			got, err := parsePythonMetadata(strings.NewReader(c.text), folder+c.file)
			require.NoError(t, err)
			assert.Equal(t, c.want, got.String())
		})
	}
}

func TestParseConda(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"python-3.11.13-h9e4cc4f_0_cpython.json", `{"build": "x", "files": ["a"], "name": "python", "version": "3.11.13"}`, "conda python 3.11.13"},
		{"ca-certificates-2025.1-h0.json", `{`, "conda ca-certificates 2025.1"},
		{"history.json", `[]`, "conda history unknown"},
	} {
		got, err := parseConda(strings.NewReader(c.text), "opt/conda/conda-meta/"+c.file)
		require.NoError(t, err)
		assert.Equal(t, c.want, got.String())
	}
}

func TestParseSystem(t *testing.T) {
	for text, want := range map[string]string{
		"PRETTY_NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n": "debian 12",
		"ID='arch'\n":      "arch",
		"":                 "",
		"ID=a b\nnonsense": "a_b",
	} {
		got, err := parseSystem(strings.NewReader(text))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestPackagesText(t *testing.T) {
	list := List{{Deb, "a", "2", "all"}, {Deb, "b", "1", "amd64"}, {Python, "b", "1", ""}}
	const text = "deb a 2 all\ndeb b 1 amd64\npython b 1\n"
	assert.Equal(t, text, list.Text())
	assert.Equal(t, "bcad7dfe64e8e1bdf97576907414009f7843998674f437eedfce79711be37b19", list.SHA256(), "printf '%s' TEXT | sha256sum")
	back, err := Parse(text)
	require.NoError(t, err)
	assert.Equal(t, list, back)
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"deb a\n":                           "must be KIND NAME VERSION [ARCH]",
		"deb a 1 all more\n":                "must be KIND NAME VERSION [ARCH]",
		"rpm a 1\n":                         "kind must be",
		"deb a 1\ndeb a 1\n":                "line 2",
		"python a 1\ndeb a 1\n":             "out of order",
		"deb  1\n":                          "not a plain word",
		"deb a\x1b 1\n":                     "not a plain word",
		"\n":                                "must be KIND",
		"deb a " + strings.Repeat("1", 300): "not a plain word",
	} {
		_, err := Parse(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestCompare(t *testing.T) {
	before, err := Parse("deb a 1 all\ndeb b 1 amd64\ndeb c 1\npython x 1\npython x 2\npython y 1\n")
	require.NoError(t, err)
	after, err := Parse("deb a 1 amd64\ndeb b 2 amd64\ndeb c 1\npython x 1\npython x 3\npython x 4\n")
	require.NoError(t, err)
	d := Compare(before, after)
	assert.Equal(t, []string{
		"+ deb a 1 amd64", "+ python x 4", "- deb a 1 all", "- python y 1", "~ deb b 1 amd64 -> 2", "~ python x 2 -> 3",
	}, d.Lines())
	assert.False(t, d.Empty())
	assert.True(t, Compare(after, after).Empty())
	assert.Equal(t, Diff{Added: []Package{}, Removed: []Package{}, Changed: []Change{}}, Compare(nil, nil))
}

func TestPythonVersion(t *testing.T) {
	deb := Package{Deb, "python3", "3.11.2-1+b1", "amd64"}
	for name, c := range map[string]struct {
		env      []string
		packages List
		want     string
	}{
		"none":        {nil, List{{Deb, "python3-numpy", "1", "all"}}, ""},
		"debian":      {[]string{"PATH=/"}, List{deb}, "3.11.2"},
		"conda first": {nil, List{{Conda, "python", "3.12.1", ""}, deb}, "3.12.1"},
		"environment": {[]string{"PYTHON_VERSION=3.13.0"}, List{deb}, "3.13.0"},
		"hostile":     {[]string{"PYTHON_VERSION=3\x1b[2J"}, nil, "3__2J"},
	} {
		assert.Equal(t, c.want, PythonVersion(c.env, c.packages), name)
	}
}

// Whatever a list is, reading it back gives the same list or an error.
func FuzzParse(f *testing.F) {
	f.Add("deb a 1 all\npython b 2\n")
	f.Add("conda c 1 \n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse(text)
		if err == nil && list.Text() != text && list.Text() != text+"\n" {
			t.Errorf("%q became %q", text, list.Text())
		}
	})
}
