//go:build unix

package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
)

// pack packs a directory as an input and lists the entries of the archive.
func pack(t *testing.T, dir string) (entries map[string]string, omitted []string, err error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	var out bytes.Buffer
	p := NewPacker(&out)
	if err := p.Tree(t.Context(), InputDir, root, nil); err != nil {
		return nil, nil, err
	}
	require.NoError(t, p.Close())
	entries = map[string]string{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, p.Omitted, nil
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		entries[h.Name] = fmt.Sprintf("%c %04o %d:%d %s%s", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Linkname, text)
	}
}

func TestPackIsReadableForEverybody(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "deep", "er"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "deep", "er", "data"), []byte("D"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run"), []byte("R"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "odd\xff\n"), []byte("O"), 0o600))
	long := strings.Repeat("n", 200)
	require.NoError(t, os.WriteFile(filepath.Join(dir, long), []byte("L"), 0o600))
	require.NoError(t, os.Symlink("deep/er/data", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "absolute")))
	require.NoError(t, os.Symlink("../../../etc/passwd", filepath.Join(dir, "deep", "out")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	entries, omitted, err := pack(t, dir)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"input/": "5 0555 0:0 ", "input/deep/": "5 0555 0:0 ", "input/deep/er/": "5 0555 0:0 ",
		"input/deep/er/data": "0 0444 0:0 D", "input/run": "0 0555 0:0 R", "input/odd\xff\n": "0 0444 0:0 O",
		"input/" + long: "0 0444 0:0 L", "input/link": "2 0777 0:0 deep/er/data", "input/absolute": "2 0777 0:0 /etc/passwd",
	}, entries)
	require.ElementsMatch(t, []string{"deep/out: a link that leads out of the directory", "fifo: not a file, a directory or a link"}, omitted)
}

func TestPackRefusesWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0))
	if os.Geteuid() == 0 {
		// Root reads everything; a file that vanished serves as well.
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		defer root.Close()
		err = NewPacker(io.Discard).File("program/x", root, "gone")
		var path *fs.PathError
		require.ErrorAs(t, err, &path)
		return
	}
	_, _, err := pack(t, dir)
	require.ErrorIs(t, err, fs.ErrPermission)
}

// TestPackNoticesAFileThatChanges lets the file grow and shrink between its header
// and its bytes.
func TestPackNoticesAFileThatChanges(t *testing.T) {
	for name, size := range map[string]int64{"grows": 20_000, "shrinks": 1} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "data")
			require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("x"), 10_000), 0o600))
			root, err := os.OpenRoot(dir)
			require.NoError(t, err)
			defer root.Close()
			// The packer writes the header, and waits here.
			header := 0
			p := NewPacker(writerFunc(func(data []byte) (int, error) {
				if header++; header == 1 {
					require.NoError(t, os.Truncate(file, size))
				}
				return len(data), nil
			}))
			require.ErrorIs(t, p.File("input/data", root, "data"), fsx.ErrChanged)
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestEscapes(t *testing.T) {
	for target, want := range map[string]bool{
		"a": false, "../b": false, "../../final/x": false, "../../..": true, "../../../etc": true, "/etc": false, "..": false, "": false,
		"../../../root": false,
	} {
		require.Equal(t, want, escapes("input/d/link", target), target)
	}
}
