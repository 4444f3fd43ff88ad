package invoke

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// Invocation is one call of a tool (M3-02).
type Invocation struct {
	// Config is the tool's configuration file. It need not exist: the tool finds that out
	// (MI-02).
	Config string
	// OutputDir gets the artifacts of the tool. It must exist, be a directory, and hold
	// none of the artifacts yet.
	OutputDir string
	// Adapter and Seed are passed on if they are not nil. An empty adapter is passed on.
	Adapter *string
	Seed    *Seed
}

// arguments are the arguments that follow the executable (M3-05).
func (inv Invocation) arguments(config, output string) []string {
	args := []string{"--config", config, "--output", output}
	if inv.Adapter != nil {
		args = append(args, "--adapter", *inv.Adapter)
	}
	if inv.Seed != nil {
		args = append(args, "--seed", inv.Seed.String())
	}
	return args
}

// absolute is the invocation with absolute paths (M3-10).
func (inv Invocation) absolute() (Invocation, error) {
	for _, path := range []struct {
		field string
		value *string
	}{{"config", &inv.Config}, {"output", &inv.OutputDir}} {
		switch {
		case *path.value == "":
			return inv, fieldError(path.field, "", "must not be empty")
		case strings.ContainsRune(*path.value, 0):
			return inv, fieldError(path.field, *path.value, "holds a NUL byte")
		}
		abs, err := filepath.Abs(*path.value)
		if err != nil {
			return inv, fieldError(path.field, *path.value, err.Error())
		}
		*path.value = abs
	}
	if inv.Adapter != nil && strings.ContainsRune(*inv.Adapter, 0) {
		return inv, fieldError("adapter", *inv.Adapter, "holds a NUL byte")
	}
	return inv, nil
}

// fieldError is a refusal of a value.
func fieldError(field, value, rule string) error {
	return &policy.FieldError{Field: field, Value: fmt.Sprintf("%.200q", value), Rule: rule}
}

// SplitCommand splits a command line into words by the rules of a POSIX shell (M3-05,
// M3-06): quotes and backslashes, and nothing else. Nothing is expanded: variables,
// patterns, pipes and comments are words.
func SplitCommand(command string) ([]string, error) {
	if strings.TrimSpace(command) == "" {
		return nil, fieldError("executable", command, "must not be empty")
	}
	if strings.ContainsRune(command, 0) {
		return nil, fieldError("executable", command, "holds a NUL byte")
	}
	words, err := shellquote.Split(command)
	switch {
	case errors.Is(err, shellquote.UnterminatedEscapeError):
		return nil, fieldError("executable", command, "No escaped character: it ends with a backslash")
	case err != nil:
		return nil, fieldError("executable", command, "No closing quotation")
	}
	return words, nil
}

// A Seed is a whole number from -2^63 to 2^64-1: each signed or unsigned number of 64 bits.
type Seed struct{ digits string } // empty for 0 as well

// NewSeed is the seed of a Go number.
func NewSeed[T ~int | ~int64 | ~uint64](n T) Seed { return Seed{fmt.Sprint(n)} }

// A SeedRangeError is a whole number that is not a [Seed].
type SeedRangeError struct {
	// Number is the number as it was given, shortened.
	Number string
}

func (e *SeedRangeError) Error() string {
	return fmt.Sprintf("the seed %s must be between %d and %d", e.Number, math.MinInt64, uint64(math.MaxUint64))
}

// ParseSeed reads a decimal number. A number out of range is a [*SeedRangeError].
func ParseSeed(number string) (Seed, error) {
	signed, err := strconv.ParseInt(number, 10, 64)
	if err == nil {
		return NewSeed(signed), nil
	}
	if n, err := strconv.ParseUint(strings.TrimPrefix(number, "+"), 10, 64); err == nil {
		return NewSeed(n), nil
	}
	shown := text.Fit(number, text.Most)
	if errors.Is(err, strconv.ErrRange) {
		return Seed{}, &SeedRangeError{shown}
	}
	return Seed{}, fmt.Errorf("the seed %q must be a whole number", shown)
}

func (s Seed) String() string { return cmp.Or(s.digits, "0") }

// Uint64 is the seed as an unsigned number; ok is false for a negative one.
func (s Seed) Uint64() (n uint64, ok bool) {
	n, err := strconv.ParseUint(s.String(), 10, 64)
	return n, err == nil
}

// MarshalJSON writes the seed as a number with all its digits.
func (s Seed) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON reads a whole number.
func (s *Seed) UnmarshalJSON(number []byte) (err error) {
	*s, err = ParseSeed(string(number))
	return err
}
