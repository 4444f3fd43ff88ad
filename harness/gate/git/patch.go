package git

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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

const linkMode = "120000"

// version is a file before or after; the zero value means that there is none.
type version struct {
	// mode is the mode that git gives the file, sum the SHA-256 of its content, or of
	// "link to TARGET".
	mode, sum string
	size      int64
}

// Compare reports what the directory after has that the directory before has not (RO-04): the
// SHA-256 of every differing file on both sides, and a patch that git apply takes if all files
// are texts. The caller sets Baseline of the result. exclude lists paths relative to
// both directories that do not count; nothing named .git does. A file of which only
// the execute permission differs has the same hash twice, and its modes in the patch. Pipes,
// sockets and directories do not count.
func Compare(ctx context.Context, before, after string, exclude []string) (changes evidence.Changes, patch []byte, err error) {
	err = fsx.InRoot(before, func(was *os.Root) error {
		return fsx.InRoot(after, func(is *os.Root) error {
			changes, patch, err = compare(ctx, was, is, exclude)
			return err
		})
	})
	if err != nil {
		return evidence.Changes{}, nil, fmt.Errorf("compare %s with %s: %w", after, before, err)
	}
	return changes, patch, nil
}

func compare(ctx context.Context, was, is *os.Root, exclude []string) (evidence.Changes, []byte, error) {
	changes, left, patch := evidence.Changes{Files: []evidence.Change{}}, 0, bytes.Buffer{}
	before, err1 := versions(ctx, was, exclude)
	after, err2 := versions(ctx, is, exclude)
	if err := errors.Join(err1, err2); err != nil {
		return changes, nil, err
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		old, now := before[name], after[name]
		if old == now {
			continue
		}
		changes.Files = append(changes.Files, evidence.Change{Path: shown(name), Before: old.sum, After: now.sum})
		from, err1 := old.text(was, name)
		into, err2 := now.text(is, name)
		if err := errors.Join(err1, err2); err != nil {
			return changes, nil, err
		}
		if text := diff(name, old, now, from, into); patch.Len()+len(text) > maxPatch {
			left++
		} else {
			patch.Write(text)
		}
	}
	if left > 0 {
		fmt.Fprintf(&patch, "# %d more files differ; the patch is cut at %d bytes\n", left, maxPatch)
	}
	return changes, patch.Bytes(), nil
}

// versions returns the files and links of a directory by name.
func versions(ctx context.Context, root *os.Root, exclude []string) (map[string]version, error) {
	all, left := map[string]version{}, maxFiles
	return all, fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (into bool, err error) {
		if path.Base(name) == ".git" || slices.ContainsFunc(exclude, func(e string) bool { return path.Clean(e) == name }) {
			return false, nil
		}
		if left--; left < 0 {
			return false, fmt.Errorf("%s has more than %d files and directories", root.Name(), maxFiles)
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := root.Readlink(name)
			all[name] = version{mode: linkMode, sum: sumOf("link to " + target)}
			return false, err
		case !info.Mode().IsRegular():
			return true, nil
		}
		file, info, err := fsx.OpenIn(root, name)
		if err != nil {
			return false, err
		}
		defer file.Close()
		v := version{mode: "100644", size: info.Size()}
		if info.Mode()&0o100 != 0 {
			v.mode = "100755"
		}
		if v.sum, err = fsx.Sum(ctx, sha256.New(), file, info); err != nil {
			return false, fmt.Errorf("%.200q: %w", name, err)
		}
		all[name] = v
		return false, nil
	})
}

// text is what a patch shows; it is nil if the file is binary or too large.
func (v version) text(root *os.Root, name string) ([]byte, error) {
	switch {
	case v.mode == linkMode:
		target, err := root.Readlink(name)
		return []byte(target), err
	case v.mode == "" || v.size > maxText:
		return nil, nil
	}
	text, err := fsx.ReadIn(root, name, maxText)
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		text = nil
	}
	return text, err
}

func sumOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// shown quotes a path as git does if it is not UTF-8, or has characters that would end a line
// or look like quotes.
func shown(name string) string {
	if utf8.ValidString(name) && strconv.CanBackquote(name) && name[0] != '"' {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// diff is the difference of two versions of a file in the form of git.
func diff(name string, old, now version, before, after []byte) []byte {
	// A file that became a link is one that went and one that came.
	if old.mode != "" && now.mode != "" && (old.mode == linkMode) != (now.mode == linkMode) {
		return append(diff(name, old, version{}, before, nil), diff(name, version{}, now, nil, after)...)
	}
	var out bytes.Buffer
	from, into := shown("a/"+name), shown("b/"+name)
	fmt.Fprintf(&out, "diff --git %s %s\n", from, into)
	switch {
	case old.mode == "":
		fmt.Fprintf(&out, "new file mode %s\n", now.mode)
		from, before = "/dev/null", []byte{}
	case now.mode == "":
		fmt.Fprintf(&out, "deleted file mode %s\n", old.mode)
		into, after = "/dev/null", []byte{}
	case old.mode != now.mode:
		fmt.Fprintf(&out, "old mode %s\nnew mode %s\n", old.mode, now.mode)
	}
	a, b := lines(before), lines(after)
	switch {
	case old.sum == now.sum: // only the mode
	case before == nil || after == nil || costly(a, b):
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
