package render

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/images/prune"
	"github.com/evalbox/evalbox/internal/text"
)

// Image describes an image. lockPath is the file of its lock.
func Image(d lock.Details, lockPath string) []string {
	e := d.Entry
	locked := "no (lock it with: sandbox image lock " + e.Name + ")"
	switch {
	case d.Locked:
		locked = "yes, in " + lockPath
	case d.LockedID != "":
		locked = fmt.Sprintf("differs: %s holds %s (see how with: sandbox image verify %s)", lockPath, d.LockedID, e.Name)
	}
	var lines []string
	for _, row := range [][2]string{
		{"image", e.Name}, {"reference", e.Reference}, {"id", e.ID}, {"content", e.Content}, {"digest", d.Digest},
		{"base", e.Base}, {"base digest", e.BaseDigest}, {"platform", e.Platform}, {"system", e.System},
		{"size", text.Size(d.SizeBytes)}, {"created", e.Created.Format(time.RFC3339)}, {"python", d.Python},
		{"packages", strconv.Itoa(len(e.Packages))}, {"locked", locked},
	} {
		lines = append(lines, fmt.Sprintf("%-12s %s", row[0], cmp.Or(row[1], "-")))
	}
	return lines
}

// LockChange says what became of the entry of an image in the lock at path.
func LockChange(change lock.Change, path string) []string {
	e := change.After
	switch b := change.Before; {
	case b == nil:
		return []string{fmt.Sprintf("locked %s: %s, %d packages, in %s", e.Name, e.ID, len(e.Packages), path)}
	case b.ID == e.ID && b.Content == e.Content && b.Reference == e.Reference && change.Diff().Empty():
		return []string{fmt.Sprintf("locked %s: %s, as before, in %s", e.Name, e.ID, path)}
	default:
		line := fmt.Sprintf("locked %s: %s instead of %s, in %s", e.Name, e.ID, b.ID, path)
		return append([]string{line}, diffLines(change.Diff(), "the packages are the same")...)
	}
}

// diffLines say how packages differ; same is the line for those that do not.
func diffLines(diff packages.Diff, same string) []string {
	if diff.Empty() {
		return []string{"  " + same}
	}
	var lines []string
	for _, line := range diff.Lines() {
		lines = append(lines, "  "+line)
	}
	return lines
}

// LockVerification says whether an image is the locked one.
func LockVerification(v lock.Verification) []string {
	how := "as locked"
	if v.ID != v.LockedID {
		how = fmt.Sprintf("the content is as locked; the lock calls it %s", v.LockedID)
	}
	if v.Same {
		return []string{fmt.Sprintf("ok       %s %s, %d packages, %s", v.Name, v.ID, v.Packages, how)}
	}
	line := fmt.Sprintf("differs  %s %s, locked is %s", v.Name, v.ID, v.LockedID)
	return append([]string{line}, diffLines(v.Diff, "the packages are the same; files or configuration differ")...)
}

// Pruned says which images were removed, or would be, and why the others stay.
func Pruned(report prune.Report, dryRun bool) []string {
	verb := "removed"
	if dryRun {
		verb = "would remove"
	}
	name := func(img prune.Image) string {
		if len(img.Tags) > 0 {
			return img.Tags[0]
		}
		return img.ID
	}
	var lines []string
	for _, img := range report.Removed {
		lines = append(lines, fmt.Sprintf("%s %s (%s, last used %s)", verb, name(img), text.Size(img.SizeBytes), img.LastUse.UTC().Format(time.RFC3339)))
	}
	for _, img := range report.Kept {
		lines = append(lines, fmt.Sprintf("kept %s (%s): %s", name(img), text.Size(img.SizeBytes), img.Reason))
	}
	return append(lines, fmt.Sprintf("%s %s, kept %s", verb, text.Size(report.RemovedBytes), text.Size(report.KeptBytes)))
}
