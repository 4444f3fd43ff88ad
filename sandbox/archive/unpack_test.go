package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalbox/evalbox/sandbox/collect"

	"github.com/stretchr/testify/require"
)

// item is one entry of an archive.
type item struct {
	name string
	kind byte // 0 is a regular file
	text string
	link string
	mode int64
	size int64 // of a file whose bytes are not there
	pax  map[string]string
}

// archive writes entries as they are given, also such as no engine makes.
func archive(t testing.TB, items ...item) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Typeflag: i.kind, Linkname: i.link, Mode: i.mode, Size: int64(len(i.text)), PAXRecords: i.pax}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if i.mode == 0 {
			h.Mode = 0o644
		}
		if i.size > 0 {
			h.Size = i.size
		}
		require.NoError(t, w.WriteHeader(h), i.name)
		if i.size == 0 {
			_, err := io.WriteString(w, i.text)
			require.NoError(t, err)
		} else {
			return out.Bytes() // the bytes are the next thing to come
		}
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

var testLimits = collect.Limits{Files: 10, Depth: 2, FileBytes: 2 << 20, TotalBytes: 3 << 20}

// unpack unpacks into a new directory and lists what is there and what was left out.
func unpack(t testing.TB, limits collect.Limits, room func() int64, at string, data []byte) (here map[string]string, skipped map[string]string, u *Unpacker, err error) {
	t.Helper()
	dir := t.TempDir()
	root, openErr := os.OpenRoot(dir)
	require.NoError(t, openErr)
	defer root.Close()
	u = NewUnpacker(root, FinalDir, limits, room)
	err = u.Unpack(t.Context(), bytes.NewReader(data), at)
	return everyEntry(t, dir), reasons(u), u, err
}

func reasons(u *Unpacker) map[string]string {
	skipped := map[string]string{}
	for _, s := range u.Skipped.Sorted() {
		skipped[s.Path] = s.Kind + ": " + s.Reason
	}
	return skipped
}

// everyEntry is every entry of a directory with its mode, and the text of files.
func everyEntry(t testing.TB, dir string) map[string]string {
	t.Helper()
	here := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(full string, entry fs.DirEntry, err error) error {
		if err != nil || full == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, full)
		info, err := os.Lstat(full)
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if info.Mode().IsRegular() && info.Size() < 100 {
			data, err := os.ReadFile(full)
			if err != nil {
				return err
			}
			text += " " + string(data)
		}
		here[rel] = text
		return nil
	}))
	return here
}

// TestUnpackWhereAnotherProcessDied: what is there of the same content is taken, and nothing else is
// touched.
func TestUnpackWhereAnotherProcessDied(t *testing.T) {
	var data bytes.Buffer
	to := tar.NewWriter(&data)
	require.NoError(t, to.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "final/", Mode: 0o755}))
	require.NoError(t, to.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "final/d/", Mode: 0o755}))
	for _, name := range []string{"d/whole", "half", "other", "longer", "linked", "symlink", "new"} {
		require.NoError(t, to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "final/" + name, Mode: 0o644, Size: 7}))
		_, err := to.Write([]byte("content"))
		require.NoError(t, err)
	}
	require.NoError(t, to.Close())
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	for name, text := range map[string]string{"d/whole": "content", "half": "con", "other": "c0n", "longer": "contents"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.NoError(t, os.WriteFile(elsewhere, nil, 0o644))
	require.NoError(t, os.Link(elsewhere, filepath.Join(dir, "linked")))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "symlink")))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	u := NewUnpacker(root, FinalDir, testLimits, nil)
	u.Resume = true
	require.NoError(t, u.Unpack(t.Context(), bytes.NewReader(data.Bytes()), "."))
	skipped := reasons(u)
	for name, want := range map[string]string{"d/whole": "content", "half": "content", "new": "content", "other": "c0n", "longer": "contents", "linked": ""} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(text), name)
		require.Equal(t, want != "content", skipped[name] != "", name)
	}
	require.NotEmpty(t, skipped["symlink"])
	text, err := os.ReadFile(elsewhere)
	require.NoError(t, err)
	require.Empty(t, text)
	require.Equal(t, 4, u.Made())
}

func TestUnpackTakesFilesAndFoldersOnly(t *testing.T) {
	dir := item{name: "final/", kind: tar.TypeDir, mode: 0o755}
	for name, test := range map[string]struct {
		items         []item
		here, skipped map[string]string
		err           error
	}{
		"files, directories and modes": {
			items: []item{dir, {name: "final/a", text: "A", mode: 0o600}, {name: "final/d/", kind: tar.TypeDir, mode: 0o40000},
				{name: "final/d/run", text: "B", mode: 0o104711}},
			here: map[string]string{"a": "-rw-r--r-- A", "d": "drwxr-xr-x", "d/run": "-rwxr-xr-x B"},
		},
		"what is no file": {
			items: []item{dir, {name: "final/l", kind: tar.TypeSymlink, link: "/etc/passwd"}, {name: "final/p", kind: tar.TypeFifo},
				{name: "final/c", kind: tar.TypeChar}, {name: "final/b", kind: tar.TypeBlock}, {name: "final/z", text: "Z"}},
			here: map[string]string{"z": "-rw-r--r-- Z"},
			skipped: map[string]string{"l": "symlink: not a regular file", "p": "fifo: not a regular file",
				"c": "device: " + collect.Whiteout, "b": "device: not a regular file"},
		},
		"names that lead out": {
			items: []item{dir, {name: "final/../out", text: "x"}, {name: "/final/abs", text: "x"}, {name: "../up", text: "x"},
				{name: "other/x", text: "x"}, {name: "finale", text: "x"}, {name: "final/./dot", text: "x"}, {name: "final//two", text: "x"},
				{name: "final/ok", text: "x"}},
			here: map[string]string{"ok": "-rw-r--r-- x"},
			skipped: map[string]string{"final/../out": outside, "/final/abs": outside, "../up": outside, "other/x": outside,
				"finale": outside, "final/./dot": outside, "final//two": outside},
		},
		"a file in a link": {
			items: []item{dir, {name: "final/l", kind: tar.TypeSymlink, link: "/tmp"}, {name: "final/l/x", text: "x"},
				{name: "final/none/x", text: "x"}, {name: "final/f", text: "f"}, {name: "final/f/x", text: "x"}},
			here: map[string]string{"f": "-rw-r--r-- f"},
			skipped: map[string]string{"l": "symlink: not a regular file", "l/x": "file: its directory is not in the archive",
				"none/x": "file: its directory is not in the archive", "f/x": "file: its directory is not in the archive"},
		},
		"twice": {
			items:   []item{dir, {name: "final/a", text: "1"}, {name: "final/a", text: "2"}, {name: "final/l", kind: tar.TypeSymlink, link: "a"}, {name: "final/l", text: "3"}},
			here:    map[string]string{"a": "-rw-r--r-- 1"},
			skipped: map[string]string{"a": "file: is in the archive twice", "l": "file: is in the archive twice"},
		},
		"hard links": {
			items: []item{dir, {name: "final/a", text: "A"}, {name: "final/b", kind: tar.TypeLink, link: "final/a", mode: 0o755},
				{name: "final/c", kind: tar.TypeLink, link: "/etc/passwd"}, {name: "final/d", kind: tar.TypeLink, link: "final/../../x"},
				{name: "final/e", kind: tar.TypeLink, link: "final/none"}, {name: "final/s", kind: tar.TypeSymlink, link: "a"},
				{name: "final/f", kind: tar.TypeLink, link: "final/s"}},
			here: map[string]string{"a": "-rw-r--r-- A", "b": "-rwxr-xr-x A"},
			skipped: map[string]string{"s": "symlink: not a regular file", "f": "file: is another name of s, which was left out",
				"c": strayLink, "d": strayLink, "e": strayLink},
		},
		"too deep": {
			items: []item{dir, {name: "final/1/", kind: tar.TypeDir}, {name: "final/1/2/", kind: tar.TypeDir}, {name: "final/1/2/f", text: "f"},
				{name: "final/1/2/3/", kind: tar.TypeDir}, {name: "final/1/2/3/g", text: "g"}, {name: "final/1/2/3/4/", kind: tar.TypeDir}},
			here:    map[string]string{"1": "drwxr-xr-x", "1/2": "drwxr-xr-x", "1/2/f": "-rw-r--r-- f"},
			skipped: map[string]string{"1/2/3": "directory: more than 2 levels deep"},
		},
		"too large, and small enough to be read over": {
			items:   []item{dir, {name: "final/a", text: strings.Repeat("a", 200)}, {name: "final/b", text: "b"}},
			here:    map[string]string{"b": "-rw-r--r-- b"},
			skipped: map[string]string{"a": "file: larger than 100 bytes"},
		},
		"all together too large": {
			items: []item{dir, {name: "final/a", text: strings.Repeat("a", 60)}, {name: "final/b", text: strings.Repeat("b", 60)},
				{name: "final/c", text: strings.Repeat("c", 60)}, {name: "final/d", text: "d"}},
			here: map[string]string{"a": "-rw-r--r-- " + strings.Repeat("a", 60), "b": "-rw-r--r-- " + strings.Repeat("b", 60),
				"d": "-rw-r--r-- d"},
			skipped: map[string]string{"c": "file: all outputs together larger than 150 bytes"},
		},
		"a record that means nothing": {
			items:   []item{dir, {name: "final/s", text: "x", pax: map[string]string{"COMMENT.x": "y"}}},
			here:    map[string]string{"s": "-rw-r--r-- x"},
			skipped: map[string]string{},
		},
		"odd names": {
			items: []item{dir, {name: "final/-rf", text: "1"}, {name: "final/a\nb", text: "2"}, {name: "final/\xff\x1b[31m", text: "3"},
				{name: "final/" + strings.Repeat("n", 255), text: "4"}, {name: "final/" + strings.Repeat("n", 300), text: "5"}, {name: "final/" + strings.Repeat("n", 5000), text: "6"}},
			here: map[string]string{"-rf": "-rw-r--r-- 1", "a\nb": "-rw-r--r-- 2", "\xff\x1b[31m": "-rw-r--r-- 3", strings.Repeat("n", 255): "-rw-r--r-- 4"},
			skipped: map[string]string{strings.Repeat("n", 300): "file: cannot be written here: file name too long",
				"final/" + strings.Repeat("n", 194): outside},
		},
	} {
		t.Run(name, func(t *testing.T) {
			limits := testLimits
			if strings.Contains(name, "large") {
				limits.FileBytes, limits.TotalBytes = 100, 150
			}
			here, skipped, _, err := unpack(t, limits, nil, ".", archive(t, test.items...))
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.here, here)
			if test.skipped == nil {
				test.skipped = map[string]string{}
			}
			require.Equal(t, test.skipped, skipped)
		})
	}
}

const (
	outside   = "other: its name in the archive leads out of the directory"
	strayLink = "file: is another name of a file that is not in the archive"
)

func TestUnpackKeepsTheProgramsModes(t *testing.T) {
	_, _, u, err := unpack(t, testLimits, nil, ".", archive(t, item{name: "final/su\x01d", text: "x", mode: 0o104755}))
	require.NoError(t, err)
	mode, ok := u.Mode(`su\x01d`)
	require.True(t, ok)
	require.EqualValues(t, 0o4755, mode)
}

func TestUnpackStopsAtTheBounds(t *testing.T) {
	var many []item
	for i := range 20 {
		many = append(many, item{name: fmt.Sprintf("final/%02d", i), text: "x"})
	}
	here, skipped, _, err := unpack(t, testLimits, nil, ".", archive(t, many...))
	require.ErrorIs(t, err, ErrTooMany)
	require.Len(t, here, 10)
	require.Equal(t, map[string]string{"10": "other: more than 10 entries"}, skipped)

	huge := archive(t, item{name: "final/huge", size: 1 << 40})
	here, skipped, _, err = unpack(t, testLimits, nil, ".", huge)
	require.ErrorIs(t, err, ErrCut, "a terabyte is not read")
	require.Empty(t, here)
	require.Equal(t, map[string]string{"huge": "file: larger than 2097152 bytes"}, skipped)

	_, skipped, _, err = unpack(t, testLimits, func() int64 { return 3 }, ".", archive(t, item{name: "final/a", text: "four"}))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "file: the disk here has no room for it"}, skipped)
}

func TestUnpackRefusesSparseFiles(t *testing.T) {
	// A sparse map of PAX 1.0 with one block of data in a file of 1 GiB.
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	data := append([]byte("1\n0\n512\n"), make([]byte, 512-8)...)
	data = append(data, make([]byte, 512)...)
	raw := paxHeader("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=final/s", "GNU.sparse.realsize=1073741824")
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "final/GNUSparseFile.0/s", Typeflag: tar.TypeReg, Size: int64(len(data)), Mode: 0o644, Format: tar.FormatUSTAR}))
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	here, skipped, _, err := unpack(t, collect.Limits{Files: 9, Depth: 9, FileBytes: 1 << 40, TotalBytes: 1 << 40}, nil, ".", append(raw, out.Bytes()...))
	require.NoError(t, err)
	require.Empty(t, here)
	require.Equal(t, map[string]string{"s": "file: is a sparse file in the archive, which is refused"}, skipped)
}

// paxHeader is an extended header of the given records, which the standard
// library refuses to write.
func paxHeader(records ...string) []byte {
	var body bytes.Buffer
	for _, r := range records {
		n := len(r) + 3
		for len(fmt.Sprint(n))+len(r)+2 != n {
			n = len(fmt.Sprint(n)) + len(r) + 2
		}
		fmt.Fprintf(&body, "%d %s\n", n, r)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	_ = w.WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: int64(body.Len()), Format: tar.FormatUSTAR})
	_, _ = w.Write(body.Bytes())
	_ = w.Flush()
	text := out.Bytes()
	text[156] = 'x'
	var sum int64
	copy(text[148:156], "        ")
	for _, b := range text[:512] {
		sum += int64(b)
	}
	copy(text[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return text
}

// TestUnpackOfWhatIsNoArchive: a PAX record of megabytes, a cut, and noise end in an
// error, and leave no part of a file.
func TestUnpackOfWhatIsNoArchive(t *testing.T) {
	whole := archive(t, item{name: "final/a", text: "A"}, item{name: "final/b", text: strings.Repeat("b", 2000)})
	for name, data := range map[string][]byte{
		"cut in a file":   whole[:1024+512+700],
		"cut in a header": whole[:1024+100],
		"noise":           bytes.Repeat([]byte{0xff, 1}, 2000),
		"huge PAX record": append(paxHeader("comment="+strings.Repeat("x", 4<<20)), whole...),
	} {
		t.Run(name, func(t *testing.T) {
			here, _, u, err := unpack(t, testLimits, nil, ".", data)
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrCut)
			require.NotContains(t, here, "b")
			require.Zero(t, u.seen["b"], "can be fetched again")
		})
	}
}

// TestUnpackGoesOn fetches what came after a cut, piece by piece.
func TestUnpackGoesOn(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	u := NewUnpacker(root, FinalDir, testLimits, nil)
	first := archive(t, item{name: "final/a", text: "A"}, item{name: "final/d/", kind: tar.TypeDir}, item{name: "final/d/huge", size: 1 << 30})
	require.ErrorIs(t, u.Unpack(t.Context(), bytes.NewReader(first), "."), ErrCut)

	list, err := ReadInventory(bufio.NewReader(strings.NewReader(answer(map[string][]string{
		"f": {"a", "d/huge", "d/z", "e/x", "f"}, "d": {"d", "e"}, "l": {"link"}, "s": {"e/sock", "sock"},
	}))), 100, 5)
	require.NoError(t, err)
	require.Equal(t, []string{"d/z", "e", "f"}, u.Left(list))
	require.NoError(t, u.Unpack(t.Context(), bytes.NewReader(archive(t, item{name: "z", text: "Z"}, item{name: "y", text: "Y"})), "d/z"))
	require.NoError(t, u.Unpack(t.Context(), bytes.NewReader(archive(t, item{name: "e/", kind: tar.TypeDir}, item{name: "e/x", text: "X"})), "e"))
	require.Equal(t, []string{"f"}, u.Left(list))
	u.Missing(list, "f", "was not in what the engine sent")
	u.Missing(list, "e/x", "is here")
	require.Equal(t, map[string]string{"a": "-rw-r--r-- A", "d": "drwxr-xr-x", "d/z": "-rw-r--r-- Z", "e": "drwxr-xr-x", "e/x": "-rw-r--r-- X"}, everyEntry(t, dir))
	require.Equal(t, map[string]string{"d/huge": "file: larger than 2097152 bytes", "link": "symlink: not a regular file",
		"sock": "socket: not a regular file", "e/sock": "socket: not a regular file", "f": "file: was not in what the engine sent", "y": outside}, reasons(u))
}

// FuzzUnpack: whatever comes, nothing appears outside of the directory, and nothing in
// it but files and directories with the modes of evalbox, within the limits.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, item{name: "final/", kind: tar.TypeDir}, item{name: "final/a", text: "A"}, item{name: "final/l", kind: tar.TypeSymlink, link: ".."},
		item{name: "final/h", kind: tar.TypeLink, link: "final/a"}, item{name: "final/l/x", text: "x"}, item{name: "../x", text: "x"}))
	f.Add(append(paxHeader("path=final/../../x"), archive(f, item{name: "final/y", text: "x"})...))
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		require.NoError(t, os.Mkdir(dir, 0o755))
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		defer root.Close()
		limits := collect.Limits{Files: 5, Depth: 2, FileBytes: 1000, TotalBytes: 2000}
		u := NewUnpacker(root, FinalDir, limits, nil)
		_ = u.Unpack(t.Context(), bytes.NewReader(data), ".")
		around, err := os.ReadDir(outer)
		require.NoError(t, err)
		require.Len(t, around, 1)
		total, entries := int64(0), 0
		require.NoError(t, filepath.WalkDir(dir, func(full string, entry fs.DirEntry, err error) error {
			if err != nil || full == dir {
				return err
			}
			info, err := os.Lstat(full)
			if err != nil {
				return err
			}
			entries++
			if info.Mode().IsRegular() {
				total += info.Size()
			} else if !info.IsDir() {
				return errors.New("neither file nor directory: " + full)
			}
			if info.Mode()&^(fs.ModeDir|0o755) != 0 {
				return errors.New("odd mode: " + info.Mode().String())
			}
			return nil
		}))
		require.LessOrEqual(t, total, limits.TotalBytes)
		require.LessOrEqual(t, entries, limits.Files)
	})
}
