package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
)

// sweepSeedsFlag is a list of seeds; a second flag adds to those of the first.
type sweepSeedsFlag struct{ target *[]int64 }

func (f *sweepSeedsFlag) String() string { return "" }

func (f *sweepSeedsFlag) Type() string { return "N,N..." }

func (f *sweepSeedsFlag) Set(shown string) error {
	for part := range strings.SplitSeq(shown, ",") {
		part = strings.TrimSpace(part)
		seed, err := strconv.ParseInt(part, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return fmt.Errorf("the seed %s must be between %d and %d", text.Fit(part, text.Most), math.MinInt64, math.MaxInt64)
		case err != nil:
			return fmt.Errorf("the seed %q must be a whole number, as in 1,2,3", text.Fit(part, text.Most))
		}
		*f.target = append(*f.target, seed)
	}
	return nil
}
