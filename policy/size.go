package policy

import (
	"fmt"
	"math"
	"strings"

	"github.com/docker/go-units"
)

// Size is a number of bytes. It reads and prints the sizes of `docker run`:
// "512m", "1.5g" and "64MiB" are powers of 1024.
type Size int64

// Common sizes.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

// ParseSize reads a size. It refuses empty, negative and overflowing values.
func ParseSize(text string) (Size, error) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return 0, fmt.Errorf("size %q is empty; give a number with a unit, such as 512m", text)
	}
	n, err := units.RAMInBytes(trimmed)
	if err != nil || n < 0 || n == math.MaxInt64 {
		return 0, fmt.Errorf("size %q is not a size; give a number with a unit, such as 512m or 2g", text)
	}
	return Size(n), nil
}

// String prints the size exactly when a unit divides it, else rounded.
func (s Size) String() string {
	switch {
	case s >= GiB && s%GiB == 0:
		return fmt.Sprintf("%dGiB", s/GiB)
	case s >= MiB && s%MiB == 0:
		return fmt.Sprintf("%dMiB", s/MiB)
	case s >= KiB && s%KiB == 0:
		return fmt.Sprintf("%dKiB", s/KiB)
	case s < KiB:
		return fmt.Sprintf("%dB", int64(s))
	}
	return units.BytesSize(float64(s))
}

// Rounded prints the size with four digits in the largest unit, such as "23.54GiB".
func (s Size) Rounded() string { return units.BytesSize(float64(s)) }

// Set reads the size from a flag; see [ParseSize].
func (s *Size) Set(text string) error {
	parsed, err := ParseSize(text)
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// Type names the value in the help text of a flag.
func (s *Size) Type() string { return "size" }

// UnmarshalText reads the size from a settings file; see [ParseSize].
func (s *Size) UnmarshalText(text []byte) error { return s.Set(string(text)) }

// MarshalText prints the size for a settings file: as [Size.String] does, but
// never rounded.
func (s Size) MarshalText() ([]byte, error) {
	if s >= KiB && s%KiB != 0 {
		return fmt.Appendf(nil, "%dB", int64(s)), nil
	}
	return []byte(s.String()), nil
}
