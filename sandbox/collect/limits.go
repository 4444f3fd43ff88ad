package collect

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/result"
)

// Limits bound a collection. A zero limit is zero, not "no limit".
type Limits struct {
	// Files bounds the entries of any kind that are listed, Depth the levels of
	// directories below the root.
	Files, Depth int
	// FileBytes and TotalBytes bound the size of one file and of all.
	FileBytes, TotalBytes int64
}

// maxSkipped bounds the list of entries that were left out. A last entry counts the rest.
const maxSkipped = 1000

// NotRegular is the reason for entries that are not regular files.
const NotRegular = "not a regular file"

// Whiteout is the reason for entries that hide others where a directory becomes a layer of a
// file system or of an image.
const Whiteout = "a whiteout: in a layer of an image it would hide another entry"

// whiteoutPrefix begins the names that mark a deletion in a layer of an image.
const whiteoutPrefix = ".wh."

// IsWhiteout reports whether an entry is a whiteout: by its name or that of a directory above
// it, or as the character device 0/0, which takes no privilege to make.
func IsWhiteout(name string, mode fs.FileMode, major, minor uint32) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, whiteoutPrefix) {
			return true
		}
	}
	return mode&fs.ModeCharDevice != 0 && major == 0 && minor == 0
}

// TooMany is the reason for entries beyond the limit of their number.
func (l Limits) TooMany() string { return fmt.Sprintf("more than %d entries", l.Files) }

// TooDeep is the reason for a directory beyond the limit of depth.
func (l Limits) TooDeep() string { return fmt.Sprintf("more than %d levels deep", l.Depth) }

// Refuse returns why a file of this size is left out, after files of total bytes were
// taken; empty if it is not.
func (l Limits) Refuse(size, total int64) string {
	switch {
	case size > l.FileBytes:
		return fmt.Sprintf("larger than %d bytes", l.FileBytes)
	case size > l.TotalBytes-total:
		return fmt.Sprintf("all outputs together larger than %d bytes", l.TotalBytes)
	}
	return ""
}

// SkipList is a bounded list of entries that were left out.
type SkipList struct {
	list []result.SkippedOutput
	more int
	// files is the number of entries that are no directories, and least a number of files that were
	// left out, whatever the list names.
	files, least int
	// cut says that there may be more.
	cut bool
	// lost is the first file that might have been collected; nil for none.
	lost *result.SkippedOutput
}

// Add adds one entry. The path may hold any bytes.
func (s *SkipList) Add(full, kind string, size int64, reason string) {
	name, raw := EncodePath(full)
	s.add(result.SkippedOutput{Path: name, PathBase64: raw, Kind: kind, SizeBytes: size, Reason: reason})
}

func (s *SkipList) add(entry result.SkippedOutput) {
	if entry.Kind != "directory" {
		s.files++
	}
	if s.lost == nil && entry.Reason != NotRegular && entry.Reason != Whiteout {
		s.lost = &entry
	}
	if len(s.list) >= maxSkipped {
		s.more++
		return
	}
	s.list = append(s.list, entry)
}

// Merge adds the entries of another list, which has none of the same.
func (s *SkipList) Merge(other SkipList) {
	files := max(s.files, s.least) + max(other.files, other.least)
	for _, entry := range other.list {
		s.add(entry)
	}
	s.more += other.more
	s.AtLeast(files)
	s.cut, s.lost = s.cut || other.cut, cmp.Or(s.lost, other.lost)
}

// AtLeast says that so many files were left out: an entry may stand for all that come after it, or
// that lie below it.
func (s *SkipList) AtLeast(files int) { s.least = max(s.least, files) }

// Count returns how many files were left out. Directories count if there is no file: nothing else
// is known of them.
func (s *SkipList) Count() int {
	if files := max(s.files, s.least); files > 0 {
		return files
	}
	return len(s.list)
}

// Cut reports whether more files than [SkipList.Count] may have been left out: not all were counted.
func (s *SkipList) Cut() bool { return s.cut }

// Lost returns the first entry that was left out although its kind is collected; nil if there is none.
func (s *SkipList) Lost() *result.SkippedOutput { return s.lost }

// Sorted returns the list, sorted by path. Its last entry counts the entries that did not fit.
func (s *SkipList) Sorted() []result.SkippedOutput {
	slices.SortStableFunc(s.list, func(a, b result.SkippedOutput) int { return strings.Compare(a.Path, b.Path) })
	if s.more == 0 {
		return s.list
	}
	return append(slices.Clone(s.list), result.SkippedOutput{
		Kind: "other", Reason: fmt.Sprintf("%d further entries were left out", s.more),
	})
}

// EncodePath renders a file name as text. A name of printable UTF-8 stays as it is. Any
// other, with invalid bytes, control characters, backslashes or invisible format
// characters, is escaped reversibly as in a Go string literal, and raw then holds its
// bytes in base64.
func EncodePath(name string) (text, raw string) {
	clean := utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '\\' || r == unicode.ReplacementChar || !unicode.IsPrint(r)
	})
	if clean {
		return name, ""
	}
	quoted := strconv.QuoteToGraphic(name)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), base64.StdEncoding.EncodeToString([]byte(name))
}
