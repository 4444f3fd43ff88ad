//go:build unix

package git

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			require.NoError(t, os.Symlink(target, at))
			continue
		}
		mode := os.FileMode(0o644)
		if rest, ok := strings.CutPrefix(text, "+x "); ok {
			text, mode = rest, 0o755
		}
		require.NoError(t, os.WriteFile(at, []byte(text), mode))
	}
	return dir
}

func TestCompare(t *testing.T) {
	before := folderOf(t, map[string]string{
		"same": "s", "changed": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "gone": "g\n", "mode": "m\n", "link": "-> a", "to link": "x\n",
		"binary": "a\x00b", "no end": "a\nb", ".git/config": "x", "skip/x": "1", "empty gone": "",
	})
	after := folderOf(t, map[string]string{
		"same": "s", "changed": "1\n2\n3\n4\nfive\n6\n7\n8\n9\n", "new": "n\n", "mode": "+x m\n", "link": "-> b", "to link": "-> x",
		"binary": "a\x00c", "no end": "a\nc", ".git/config": "y", "skip/x": "2", "deep/.git/x": "1", "odd \"\n": "1\n",
	})
	require.NoError(t, syscall.Mkfifo(filepath.Join(after, "pipe"), 0o644))
	changes, diff, err := Compare(t.Context(), before, after, []string{"skip/"})
	require.NoError(t, err)
	sum := func(text string) string { return sumOf(text) }
	require.Equal(t, evidence.Changes{Files: []evidence.Change{
		{Path: "binary", Before: sum("a\x00b"), After: sum("a\x00c")},
		{Path: "changed", Before: sum("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), After: sum("1\n2\n3\n4\nfive\n6\n7\n8\n9\n")},
		{Path: "empty gone", Before: sum("")},
		{Path: "gone", Before: sum("g\n")},
		{Path: "link", Before: sum("link to a"), After: sum("link to b")},
		{Path: "mode", Before: sum("m\n"), After: sum("m\n")},
		{Path: "new", After: sum("n\n")},
		{Path: "no end", Before: sum("a\nb"), After: sum("a\nc")},
		{Path: `"odd \"\n"`, After: sum("1\n")},
		{Path: "to link", Before: sum("x\n"), After: sum("link to x")},
	}}, changes)
	require.Equal(t, strings.ReplaceAll(`diff --git a/binary b/binary
Binary files a/binary and b/binary differ
diff --git a/changed b/changed
--- a/changed
+++ b/changed
@@ -2,7 +2,7 @@
 2
 3
 4
-5
+five
 6
 7
 8
diff --git a/empty gone b/empty gone
deleted file mode 100644
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-g
diff --git a/link b/link
--- a/link
+++ b/link
@@ -1 +1 @@
-a
\ No newline at end of file
+b
\ No newline at end of file
diff --git a/mode b/mode
old mode 100644
new mode 100755
diff --git a/new b/new
new file mode 100644
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+n
diff --git a/no end b/no end
--- a/no end<TAB>
+++ b/no end<TAB>
@@ -1,2 +1,2 @@
 a
-b
\ No newline at end of file
+c
\ No newline at end of file
diff --git "a/odd \"\n" "b/odd \"\n"
new file mode 100644
--- /dev/null
+++ "b/odd \"\n"<TAB>
@@ -0,0 +1 @@
+1
diff --git a/to link b/to link
deleted file mode 100644
--- a/to link<TAB>
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/to link b/to link
new file mode 120000
--- /dev/null
+++ b/to link<TAB>
@@ -0,0 +1 @@
+x
\ No newline at end of file
`, "<TAB>", "\t"), string(diff))

	again, second, err := Compare(t.Context(), before, after, []string{"skip"})
	require.NoError(t, err)
	require.Equal(t, changes, again)
	require.Equal(t, diff, second)
	none, empty, err := Compare(t.Context(), before, before, nil)
	require.NoError(t, err)
	require.Equal(t, []evidence.Change{}, none.Files)
	require.Empty(t, empty)
}

// TestCompareBounds: large texts, and texts whose difference would take long, are shown as
// binary, and the patch ends.
func TestCompareBounds(t *testing.T) {
	big := strings.Repeat("x\n", maxText/2+1)
	_, diff, err := Compare(t.Context(), folderOf(t, nil), folderOf(t, map[string]string{"big": big}), nil)
	require.NoError(t, err)
	require.Equal(t, "diff --git a/big b/big\nnew file mode 100644\nBinary files /dev/null and b/big differ\n", string(diff))

	many := map[string]string{}
	for i := range 20 {
		many[fmt.Sprintf("%02d", i)] = strings.Repeat(strings.Repeat("y", 99)+"\n", maxText/101)
	}
	changes, diff, err := Compare(t.Context(), folderOf(t, nil), folderOf(t, many), nil)
	require.NoError(t, err)
	require.Len(t, changes.Files, 20)
	require.LessOrEqual(t, len(diff), maxPatch+200)
	require.Contains(t, string(diff), "more files differ; the patch is cut at 16777216 bytes")

	var a, b strings.Builder
	for i := range 50_000 {
		fmt.Fprintln(&a, i%300)
		fmt.Fprintln(&b, (i*7)%300)
	}
	_, diff, err = Compare(t.Context(), folderOf(t, map[string]string{"x": a.String()}), folderOf(t, map[string]string{"x": b.String()}), nil)
	require.NoError(t, err)
	require.Equal(t, "diff --git a/x b/x\nBinary files a/x and b/x differ\n", string(diff))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = Compare(ctx, t.TempDir(), t.TempDir(), nil)
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = Compare(t.Context(), filepath.Join(t.TempDir(), "none"), t.TempDir(), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// applied carries the hunks of a patch of one file out.
func applied(t *testing.T, text, diff string) string {
	t.Helper()
	old := lines([]byte(text))
	_, body, ok := strings.Cut(diff, "\n@@ ")
	if !ok {
		return text
	}
	var out strings.Builder
	at := 0
	for hunk := range strings.SplitSeq("@@ "+body, "\n@@ ") {
		hunk = "@@ " + strings.TrimPrefix(hunk, "@@ ")
		header, content, _ := strings.Cut(hunk, "\n")
		if !strings.HasSuffix(content, "\n") {
			content += "\n"
		}
		start, count := 0, 1
		from := strings.Fields(header)[1][1:]
		if n, err := fmt.Sscanf(from, "%d,%d", &start, &count); n == 0 {
			require.NoError(t, err)
		}
		if count > 0 {
			start--
		}
		for ; at < start; at++ {
			out.WriteString(old[at])
		}
		for _, line := range strings.SplitAfter(content, "\n") {
			switch {
			case line == "":
			case line[0] == ' ', line[0] == '-':
				require.Equal(t, old[at], line[1:])
				at++
				if line[0] == ' ' {
					out.WriteString(line[1:])
				}
			case line[0] == '+':
				out.WriteString(line[1:])
			default:
				require.Fail(t, "not a line of a hunk", "%q", line)
			}
		}
	}
	for ; at < len(old); at++ {
		out.WriteString(old[at])
	}
	return out.String()
}

// FuzzHunks: a patch makes the new text of the old one.
func FuzzHunks(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nc\nd\n")
	f.Add("", "a\n")
	f.Add(strings.Repeat("x\n", 400), strings.Repeat("x\ny\n", 300))
	f.Add(strings.Repeat("x\n", 20)+"a\n", "b\n"+strings.Repeat("x\n", 20))
	f.Fuzz(func(t *testing.T, a, b string) {
		// The end without a line end is shown as git does, see TestCompare.
		if a != "" && !strings.HasSuffix(a, "\n") || b != "" && !strings.HasSuffix(b, "\n") || a == b {
			return
		}
		text := string(diff("x", version{"100644", "1", 1}, version{"100644", "2", 1}, []byte(a), []byte(b)))
		if !strings.Contains(text, "Binary files") { // its difference would take long
			require.Equal(t, b, applied(t, a, text))
		}
	})
}
