package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A setter reads one value from its text and stores it. It says which rule a bad
// value breaks; its caller knows the name and the source.
type setter func(text string) error

// errOutOfRange means that a value could be read, but cannot be meant.
var errOutOfRange = errors.New("must be more than 0")

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

func textTo(target *string) setter {
	return func(text string) error {
		if strings.ContainsRune(text, 0) {
			return errors.New("must not hold a NUL byte")
		}
		*target = text
		return nil
	}
}

// foldersTo takes whole paths, joined as in PATH; nothing is no folder.
func foldersTo(target *[]string) setter {
	return func(text string) error {
		if strings.ContainsRune(text, 0) {
			return errors.New("must not hold a NUL byte")
		}
		folders := filepath.SplitList(text)
		for _, folder := range folders {
			if !filepath.IsAbs(folder) {
				return fmt.Errorf("must be folders with their whole path, as a list or joined by %q", filepath.ListSeparator)
			}
		}
		*target = folders
		return nil
	}
}

// gpusTo takes what the planner takes, also with the quotes that docker needs
// around a list.
func gpusTo(target *string) setter {
	return func(text string) error {
		text = strings.Trim(text, `"`)
		var field *policy.FieldError
		if _, err := spec.ParseGPUs(text); errors.As(err, &field) {
			return errors.New(field.Rule)
		}
		*target = text
		return nil
	}
}

// wordTo takes one of some words, or nothing, which is the first of them.
func wordTo(target *string, words ...string) setter {
	return func(text string) error {
		if text != "" && !slices.Contains(words, text) {
			last := len(words) - 1
			return fmt.Errorf("must be %s or %s", strings.Join(words[:last], ", "), words[last])
		}
		*target = text
		return nil
	}
}

// levelTo takes a level of network access.
func levelTo(target *policy.NetworkLevel) setter {
	levels := policy.NetworkLevels()
	words := make([]string, len(levels))
	for i, level := range levels {
		words[i] = string(level)
	}
	return wordTo((*string)(target), words...)
}

func boolTo(target *bool) setter {
	return func(text string) error {
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("must be true or false")
		}
		*target = b
		return nil
	}
}

func sizeTo(target *policy.Size) setter {
	return func(text string) error {
		size, err := policy.ParseSize(strings.TrimPrefix(text, "-"))
		switch {
		case err != nil:
			return errors.New("must be a number with a unit, such as 512m or 2g")
		case size == 0 || strings.HasPrefix(text, "-"):
			return errOutOfRange
		}
		*target = size
		return nil
	}
}

func durationTo(target *time.Duration) setter {
	return func(text string) error {
		d, err := parseDuration(text)
		switch {
		case err != nil:
			return err
		case d <= 0:
			return errOutOfRange
		}
		*target = d
		return nil
	}
}

// waitTo takes a duration that may be 0: not to wait.
func waitTo(target *time.Duration) setter {
	return func(text string) error {
		d, err := parseDuration(text)
		switch {
		case err != nil:
			return err
		case d < 0:
			return errors.New("must not be negative")
		}
		*target = d
		return nil
	}
}

// parseDuration reads Go's durations, and a bare number as seconds, which is what
// timeout(1) takes.
func parseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || math.Abs(seconds) > time.Duration(math.MaxInt64).Seconds()-1 {
		return 0, errors.New("must be a duration, such as 90s, 10m or 1h30m")
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

func floatTo(target *float64) setter {
	return func(text string) error {
		f, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange):
			return errors.New("must be a number, such as 0.5 or 4")
		case !(f > 0) || math.IsInf(f, 0): // also NaN
			return errOutOfRange
		}
		*target = f
		return nil
	}
}

func countTo[T int | int64](target *T) setter {
	return func(text string) error {
		n, err := strconv.ParseInt(text, 10, strconv.IntSize)
		switch {
		case err != nil:
			return errors.New("must be a whole number")
		case n <= 0:
			return errOutOfRange
		}
		*target = T(n)
		return nil
	}
}
