package record

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Known is what a handle can name a run by.
type Known struct {
	ID, Name string
	Created  time.Time
	// Status is how the run ended, or its state. Only messages show it.
	Status string
}

// Last is the handle of the newest run.
const Last = "last"

// minPart is the number of characters from which on a part of an ID's random end is a handle.
// Fewer would name a run by accident.
const minPart = 4

// maxCandidates bounds the runs that an [AmbiguousError] lists.
const maxCandidates = 5

var (
	relativeHandle = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[-~]([1-9][0-9]{0,8})$`) })
	generatedID    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{8}t[0-9]{6}-([0-9a-f]{10})$`) })
)

// ShortID returns the random end of an ID that [NewID] made, which is a handle too. It returns
// every other ID whole.
func ShortID(id string) string {
	if m := generatedID().FindStringSubmatch(id); m != nil {
		return m[1]
	}
	return id
}

// AmbiguousError reports a handle that names several runs.
type AmbiguousError struct {
	Handle string
	// Matches are the runs, newest first.
	Matches []Known
}

func (e *AmbiguousError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %q: matches %d runs:", e.Handle, len(e.Matches))
	for i, k := range e.Matches {
		if i == maxCandidates {
			fmt.Fprintf(&b, "\nand %d more", len(e.Matches)-i)
			break
		}
		fmt.Fprintf(&b, "\n%s  %s  %s", k.ID, k.Created.Local().Format(time.DateTime), k.Status)
		if k.Name != "" {
			b.WriteString("  " + k.Name)
		}
	}
	return b.String()
}

// Hint implements the interface of errors with hints.
func (e *AmbiguousError) Hint() string {
	return "give the ID of one of them, or the part after its \"-\""
}

// Resolve returns the ID of the run that a handle names. A handle is, in this order:
//
//   - the ID of a run;
//   - "last" or "-1" for the newest run, "-2" for the one before it, and so on. "~1" is another
//     spelling of "-1", for where an argument cannot begin with "-";
//   - the name of exactly one run;
//   - the beginning of exactly one ID, or of the random part of an ID that [NewID] made;
//   - at least 4 characters from that random part, if no other run has them.
//
// A handle of no run is an [ErrNoRecord], a handle of several an [*AmbiguousError].
func Resolve(handle string, runs []Known) (string, error) {
	newest := slices.Clone(runs)
	slices.SortFunc(newest, func(a, b Known) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.ID, a.ID))
	})
	with := func(matches func(Known) bool) (found []Known) {
		for _, k := range newest {
			if matches(k) {
				found = append(found, k)
			}
		}
		return found
	}
	if len(with(func(k Known) bool { return k.ID == handle })) > 0 {
		return handle, nil
	}
	if back := backOf(handle); back > len(newest) {
		return "", tooFar(handle, len(newest))
	} else if back > 0 {
		return newest[back-1].ID, nil
	}
	if err := policy.CheckName("id", handle); err != nil {
		return "", err
	}
	for _, matches := range []func(Known) bool{
		func(k Known) bool { return k.Name == handle },
		func(k Known) bool {
			return strings.HasPrefix(k.ID, handle) || strings.HasPrefix(ShortID(k.ID), handle)
		},
		func(k Known) bool {
			return len(handle) >= minPart && ShortID(k.ID) != k.ID && strings.Contains(ShortID(k.ID), handle)
		},
	} {
		switch found := with(matches); len(found) {
		case 0:
		case 1:
			return found[0].ID, nil
		default:
			return "", &AmbiguousError{Handle: handle, Matches: found}
		}
	}
	return "", fmt.Errorf("run %q: %w", handle, ErrNoRecord)
}

// backOf returns 1 for the handle of the newest run, 2 for the one before it, and 0 for a handle
// that does not count back.
func backOf(handle string) int {
	if handle == Last {
		return 1
	}
	if m := relativeHandle().FindStringSubmatch(handle); m != nil {
		n, _ := strconv.Atoi(m[1]) // at most 9 digits
		return n
	}
	return 0
}

// tooFar is an error for a handle that counts back beyond the oldest of n runs.
func tooFar(handle string, n int) error {
	switch handle = strings.Replace(handle, "~", "-", 1); n {
	case 0:
		return noneError{}
	case 1:
		return fmt.Errorf("run %q: %w: only 1 is recorded", handle, ErrNoRecord)
	}
	return fmt.Errorf("run %q: %w: only %d are recorded", handle, ErrNoRecord, n)
}

// noneError reports that there are no records at all.
type noneError struct{}

func (noneError) Error() string { return "no run is recorded yet" }

func (noneError) Hint() string { return "start one with: sandbox run SCRIPT.py" }

func (noneError) Is(target error) bool { return target == ErrNoRecord }

// Find returns the ID of the run that a handle names; see [Resolve].
func (s *Store) Find(handle string) (string, error) {
	if policy.CheckName("id", handle) == nil {
		if info, err := os.Lstat(filepath.Join(s.RunsDir(), handle)); err == nil && info.IsDir() {
			return handle, nil // without a look at the other runs
		}
	} else if backOf(handle) == 0 {
		return Resolve(handle, nil)
	}
	// A record that cannot be read has no name, but an ID.
	ids, err := s.IDs()
	if err != nil {
		return "", err
	}
	records, _ := s.list(nameForms, func(*Record) {})
	known := make(map[string]Known, len(ids))
	for _, id := range ids {
		known[id] = Known{ID: id}
	}
	for _, each := range records {
		known[each.ID] = Known{ID: each.ID, Name: each.Spec.Job.Name, Created: each.Created}
	}
	runs := make([]Known, 0, len(known))
	for _, k := range known {
		runs = append(runs, k)
	}
	id, err := Resolve(handle, runs)
	if several, ok := err.(*AmbiguousError); ok { //nolint:errorlint // Resolve wraps nothing
		for i := range min(len(several.Matches), maxCandidates) {
			several.Matches[i].Status = s.statusOf(several.Matches[i].ID)
		}
	}
	return id, err
}

// nameForms reads of a run what [Resolve] needs.
var nameForms = forms{spec: func(text []byte) (spec.Spec, error) { return briefForms.spec(text) }}

// statusOf is the status of a run in a message.
func (s *Store) statusOf(id string) string {
	each, err := s.load(id, briefForms)
	switch {
	case err != nil:
		return "unreadable"
	case each.Result == nil:
		return string(each.State)
	}
	return each.Result.Status.String()
}
