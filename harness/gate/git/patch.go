package git

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/fsx"
)

const (
	// maxText bounds a file of which lines are shown, maxPatch the whole patch.
	maxText  = 1 << 20
	maxPatch = 16 << 20
	// maxLines and maxPairs bound the lines of a file, and the pairs of equal lines of two
	// files, whose difference is computed: its time grows with their product. Other
	// texts are shown like binary files.
	maxLines = 10_000
	maxPairs = 100_000
)

// version is a file before or after; the zero value means that there is none.
type version struct {
	// mode is the mode that git gives the file, sum the SHA-256 of its content, or of
	// "link to TARGET".
	mode, sum string
	// text is what a patch shows; it is nil if the file is binary or too large.
	text []byte
}

// Compare reports what the directory after has that the directory before has not (RO-04): the
// SHA-256 of every differing file on both sides, and a patch that git apply takes if all files
// are texts. The caller sets Baseline of the result. exclude lists paths relative to
// both directories that do not count; nothing named .git does. A file of which only
// the execute permission differs has the same hash twice, and its modes in the patch. Pipes,
// sockets and directories do not count.
func Compare(ctx context.Context, before, after string, exclude []string) (evidence.Changes, []byte, error) {
	changes, left, patch := evidence.Changes{Files: []evidence.Change{}}, 0, bytes.Buffer{}
	err := fsx.InRoot(before, func(was *os.Root) error {
		return fsx.InRoot(after, func(is *os.Root) error {
			names, err := filesOf(ctx, exclude, was, is)
			if err != nil {
				return err
			}
			for _, name := range names {
				old, err := versionOf(ctx, was, name)
				if err != nil {
					return err
				}
				now, err := versionOf(ctx, is, name)
				if err != nil {
					return err
				}
				if old.mode == now.mode && old.sum == now.sum {
					continue
				}
				changes.Files = append(changes.Files, evidence.Change{Path: shown(name), Before: old.sum, After: now.sum})
				if text := diff(name, old, now); patch.Len()+len(text) > maxPatch {
					left++
				} else {
					patch.Write(text)
				}
			}
			return nil
		})
	})
	if err != nil {
		return evidence.Changes{}, nil, fmt.Errorf("compare %s with %s: %w", after, before, err)
	}
	if left > 0 {
		fmt.Fprintf(&patch, "# %d more files differ; the patch is cut at %d bytes\n", left, maxPatch)
	}
	return changes, patch.Bytes(), nil
}

// filesOf lists the files and links of two directories, sorted.
func filesOf(ctx context.Context, exclude []string, roots ...*os.Root) ([]string, error) {
	names := map[string]bool{}
	for _, root := range roots {
		left := maxFiles
		err := fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (into bool, err error) {
			if path.Base(name) == ".git" || slices.ContainsFunc(exclude, func(e string) bool { return path.Clean(e) == name }) {
				return false, nil
			}
			if left--; left < 0 {
				return false, fmt.Errorf("%s has more than %d files and directories", root.Name(), maxFiles)
			}
			if info.Mode().IsRegular() || info.Mode()&fs.ModeSymlink != 0 {
				names[name] = true
			}
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// versionOf reads a file or link once.
func versionOf(ctx context.Context, root *os.Root, name string) (version, error) {
	info, err := fsx.LstatBelow(root, name)
	switch {
	case err != nil, info.IsDir(): // nothing, also if a part of the path is not a directory
		return version{}, nil //nolint:nilerr // the other side has it
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		return version{"120000", sumOf("link to " + target), []byte(target)}, err
	case !info.Mode().IsRegular():
		return version{}, nil
	}
	file, info, err := fsx.OpenIn(root, name)
	if err != nil {
		return version{}, err
	}
	defer file.Close()
	var text bytes.Buffer
	sum := sha256.New()
	var to io.Writer = sum
	if info.Size() <= maxText {
		to = io.MultiWriter(sum, &text)
	}
	if err := fsx.CopyContent(ctx, to, file, info); err != nil {
		return version{}, fmt.Errorf("%.200q: %w", name, err)
	}
	v := version{mode: "100644", sum: hex.EncodeToString(sum.Sum(nil))}
	if info.Mode()&0o100 != 0 {
		v.mode = "100755"
	}
	if info.Size() <= maxText && utf8.Valid(text.Bytes()) && !bytes.Contains(text.Bytes(), []byte{0}) {
		v.text = append([]byte{}, text.Bytes()...)
	}
	return v, nil
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// shown quotes a path as git does if it is not UTF-8, or has characters that would end a line
// or look like quotes.
func shown(name string) string {
	if utf8.ValidString(name) && strconv.CanBackquote(name) && name[0] != '"' {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// prefixed is a path in a patch.
func prefixed(prefix, name string) string {
	if text := shown(name); text != name {
		return `"` + prefix + text[1:]
	}
	return prefix + name
}

// diff is the difference of two versions of a file in the form of git.
func diff(name string, old, now version) []byte {
	const link = "120000"
	// A file that became a link is one that went and one that came.
	if old.mode != "" && now.mode != "" && (old.mode == link) != (now.mode == link) {
		return append(diff(name, old, version{}), diff(name, version{}, now)...)
	}
	var out bytes.Buffer
	from, into := prefixed("a/", name), prefixed("b/", name)
	fmt.Fprintf(&out, "diff --git %s %s\n", from, into)
	switch {
	case old.mode == "":
		fmt.Fprintf(&out, "new file mode %s\n", now.mode)
		from, old.text = "/dev/null", []byte{}
	case now.mode == "":
		fmt.Fprintf(&out, "deleted file mode %s\n", old.mode)
		into, now.text = "/dev/null", []byte{}
	case old.mode != now.mode:
		fmt.Fprintf(&out, "old mode %s\nnew mode %s\n", old.mode, now.mode)
	}
	a, b := lines(old.text), lines(now.text)
	switch {
	case old.sum == now.sum: // only the mode
	case old.text == nil || now.text == nil || costly(a, b):
		fmt.Fprintf(&out, "Binary files %s and %s differ\n", from, into)
	case len(a)+len(b) > 0:
		for _, name := range []*string{&from, &into} {
			if strings.Contains(*name, " ") {
				*name += "\t" // so that the name does not end at the space
			}
		}
		// A buffer never fails.
		_ = difflib.WriteUnifiedDiff(&out, difflib.UnifiedDiff{A: a, B: b, FromFile: from, ToFile: into, Context: 3})
	}
	return out.Bytes()
}

// lines keeps line ends, and says as git does where the last one is missing.
func lines(text []byte) []string {
	var all []string
	for line := range bytes.Lines(text) {
		all = append(all, string(line))
	}
	if n := len(all); n > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		all[n-1] += "\n\\ No newline at end of file\n"
	}
	return all
}

// costly reports whether the difference of two texts would take long.
func costly(a, b []string) bool {
	count := make(map[string]int, len(a))
	for _, line := range a {
		count[line]++
	}
	pairs := 0
	for _, line := range b {
		pairs += count[line]
	}
	return pairs > maxPairs || min(len(a), len(b)) > 0 && max(len(a), len(b)) > maxLines
}
