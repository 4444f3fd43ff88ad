package collect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/result"
)

// maxSkipped bounds the list of what was left out; the last entry then counts
// the rest.
const maxSkipped = 1000

// NotRegular is the reason for what is no regular file.
const NotRegular = "not a regular file"

// TooMany is the reason for entries beyond the limit of their number.
func (l Limits) TooMany() string { return fmt.Sprintf("more than %d entries", l.Files) }

// TooDeep is the reason for a folder beyond the limit of depth.
func (l Limits) TooDeep() string { return fmt.Sprintf("more than %d levels deep", l.Depth) }

// TooLarge is the reason for a file beyond the limit of one file's size.
func (l Limits) tooLarge() string { return fmt.Sprintf("larger than %d bytes", l.FileBytes) }

// TooMuch is the reason for a file beyond the limit of all sizes together.
func (l Limits) tooMuch() string {
	return fmt.Sprintf("all outputs together larger than %d bytes", l.TotalBytes)
}

// Refuse says why a file of this size is left out, after files of total bytes were
// taken; or nothing.
func (l Limits) Refuse(size, total int64) string {
	switch {
	case size > l.FileBytes:
		return l.tooLarge()
	case size > l.TotalBytes-total:
		return l.tooMuch()
	}
	return ""
}

// SkipList is a bounded list of what was left out.
type SkipList struct {
	list []result.SkippedOutput
	more int
}

// Add notes one entry. The path is untrusted bytes.
func (s *SkipList) Add(full, kind string, size int64, reason string) {
	if len(s.list) >= maxSkipped {
		s.more++
		return
	}
	name, raw := EncodePath(full)
	s.list = append(s.list, result.SkippedOutput{Path: name, PathBase64: raw, Kind: kind, SizeBytes: size, Reason: reason})
}

// Sorted is the list by path; its last entry counts what did not fit.
func (s *SkipList) Sorted() []result.SkippedOutput {
	slices.SortStableFunc(s.list, func(a, b result.SkippedOutput) int { return strings.Compare(a.Path, b.Path) })
	if s.more > 0 {
		s.list = append(s.list, result.SkippedOutput{
			Kind: "other", Reason: fmt.Sprintf("%d further entries were left out", s.more),
		})
		s.more = 0
	}
	return s.list
}
