package settings

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stop"
	"github.com/evalbox/evalbox/sandbox/uid"
)

// A setter reads one value from its text and stores it. Its error is the rule that a bad
// value breaks; its caller knows the name and the source.
type setter func(text string) error

// errOutOfRange means that a value could be read, but cannot be meant.
var errOutOfRange = errors.New("must be more than 0")

// to returns a setter that stores the result of read in target.
func to[T any](target *T, read func(text string) (T, error)) setter {
	return func(text string) error {
		value, err := read(text)
		if err == nil {
			*target = value
		}
		return err
	}
}

// limitTo returns the kind of a limit and its setter, which takes a word for the zero
// value, if there is one.
func limitTo(field any, zero string) (kind string, set setter) {
	switch field := field.(type) {
	case *time.Duration:
		kind, set = "duration", to(field, readTime)
	case *policy.Size:
		kind, set = "size", to(field, ReadSize)
	case *float64:
		kind, set = "number", to(field, readNumber)
	case *int64:
		kind, set = "number", to(field, readCount)
	case *int:
		kind, set = "number", to(field, func(text string) (int, error) {
			n, err := readCount(text)
			return int(n), err
		})
	}
	return kind, orWord(zero, set)
}

// orWord returns a setter that takes word, if there is one, for the zero value.
func orWord(word string, set setter) setter {
	if word == "" {
		return set
	}
	return func(text string) error {
		if text == word {
			return nil // targets start at their zero value
		}
		if err := set(text); err != nil {
			return fmt.Errorf("%w, or %s", err, word)
		}
		return nil
	}
}

func readText(text string) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", errors.New("must not hold a NUL byte")
	}
	return text, nil
}

// readGrade reads a grade of isolation; an empty one is any.
func readGrade(given string) (policy.IsolationGrade, error) {
	grades := policy.IsolationGrades()
	if grade := policy.IsolationGrade(given); given == "" || slices.Contains(grades, grade) {
		return grade, nil
	}
	return "", errors.New("must be one of " + text.List(grades))
}

// readUIDs checks the form of a range of user IDs. The accounts of subuid:NAME are looked up
// when the runner is made.
func readUIDs(text string) (string, error) {
	if text == "" || text == "none" || strings.HasPrefix(text, "subuid:") {
		return text, nil
	}
	_, err := uid.ParseRange(text)
	return text, err
}

// readDirectories reads whole paths, joined as in PATH; an empty text names none.
func readDirectories(text string) ([]string, error) {
	if _, err := readText(text); err != nil {
		return nil, err
	}
	all := filepath.SplitList(text)
	for _, dir := range all {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("must be directories with their whole path, as a list or joined by %q", filepath.ListSeparator)
		}
	}
	return all, nil
}

// pathSeparator joins the parts of a list of paths.
const pathSeparator = string(filepath.ListSeparator)

// readNames reads texts that are joined by commas; an empty text names none.
func readNames(text string) ([]string, error) {
	if _, err := readText(text); err != nil {
		return nil, err
	}
	var all []string
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all, nil
}

// readPairs reads NAME=VALUE, joined by commas.
func readPairs(text string) (map[string]string, error) {
	names, err := readNames(text)
	if err != nil {
		return nil, err
	}
	pairs := map[string]string{}
	for _, each := range names {
		name, value, ok := strings.Cut(each, "=")
		if !ok || name == "" {
			return nil, errors.New("must be NAME=VALUE, as a list or joined by commas")
		}
		if _, twice := pairs[name]; twice {
			return nil, fmt.Errorf("names %s twice", name)
		}
		pairs[name] = value
	}
	return pairs, nil
}

// readImages reads NAME=REFERENCE, joined by commas, where each reference has a digest.
func readImages(text string) (map[string]string, error) {
	pairs, err := readPairs(text)
	if err != nil {
		return nil, err
	}
	for _, ref := range pairs {
		if _, err := readDigested(ref); err != nil || ref == "" {
			return nil, errors.New("must be NAME=REGISTRY/REPOSITORY@sha256:…, as a list or joined by commas")
		}
	}
	return pairs, nil
}

// readDigested reads a reference with a digest, or nothing.
func readDigested(text string) (string, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if _, ok := named.(reference.Digested); text != "" && (err != nil || !ok) {
		return "", errors.New("must be an image by its digest: REGISTRY/REPOSITORY@sha256:…, as sandbox image push prints it")
	}
	return text, nil
}

// readModules reads names of modules, joined by commas or as in PATH; an empty text names none.
func readModules(text string) ([]string, error) {
	if _, err := readText(text); err != nil || text == "" {
		return nil, err
	}
	var all []string
	for _, name := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == filepath.ListSeparator }) {
		all = append(all, strings.TrimSpace(name))
	}
	return all, nil
}

// ruleSeparator joins stop rules.
const ruleSeparator = ";"

// readRules reads stop rules, joined by semicolons; an empty text has none.
func readRules(text string) (all []string, err error) {
	if _, err := readText(text); err != nil {
		return nil, err
	}
	for rule := range strings.SplitSeq(text, ruleSeparator) {
		if rule = strings.TrimSpace(rule); rule == "" {
			continue
		}
		if _, err := stop.Parse(rule); err != nil {
			return nil, err
		}
		all = append(all, rule)
	}
	return all, nil
}

// readGPUs reads the form of the planner, also with the quotes that docker needs around a
// list.
func readGPUs(text string) (string, error) {
	text = strings.Trim(text, `"`)
	var field *policy.FieldError
	if _, err := spec.ParseGPUs(text); errors.As(err, &field) {
		return "", errors.New(field.Rule)
	}
	return text, nil
}

// readWord reads one of some words, or nothing, which is the first of them.
func readWord(words ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		if text != "" && !slices.Contains(words, text) {
			last := len(words) - 1
			return "", fmt.Errorf("must be %s or %s", strings.Join(words[:last], ", "), words[last])
		}
		return text, nil
	}
}

// readLevel reads a level of network access.
func readLevel(text string) (policy.NetworkLevel, error) {
	var words []string
	for _, level := range policy.NetworkLevels() {
		words = append(words, string(level))
	}
	word, err := readWord(words...)(text)
	return policy.NetworkLevel(word), err
}

func readBool(text string) (bool, error) {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, errors.New("must be true or false")
	}
	return b, nil
}

// ReadSize reads a size of more than 0.
func ReadSize(text string) (policy.Size, error) {
	size, err := policy.ParseSize(strings.TrimPrefix(text, "-"))
	switch {
	case err != nil:
		return 0, errors.New("must be a number with a unit, such as 512m or 2g")
	case size == 0 || strings.HasPrefix(text, "-"):
		return 0, errOutOfRange
	}
	return size, nil
}

// ReadDuration reads Go's durations, and a bare number as seconds, as timeout(1) does. It
// may be negative.
func ReadDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || math.Abs(seconds) > time.Duration(math.MaxInt64).Seconds()-1 {
		return 0, errors.New("must be a duration, such as 90s, 10m or 1h30m")
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// readTime reads a duration of more than 0.
func readTime(text string) (time.Duration, error) {
	d, err := ReadDuration(text)
	if err == nil && d <= 0 {
		err = errOutOfRange
	}
	return d, err
}

// readWait reads a duration that may be 0: not to wait.
func readWait(text string) (time.Duration, error) {
	d, err := ReadDuration(text)
	if err == nil && d < 0 {
		err = errors.New("must not be negative")
	}
	return d, err
}

func readNumber(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, errors.New("must be a number, such as 0.5 or 4")
	case !(f > 0) || math.IsInf(f, 0): // also NaN
		return 0, errOutOfRange
	}
	return f, nil
}

func readCount(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, strconv.IntSize)
	switch {
	case err != nil:
		return 0, errors.New("must be a whole number")
	case n <= 0:
		return 0, errOutOfRange
	}
	return n, nil
}
