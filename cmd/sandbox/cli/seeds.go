package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// MaxSeeds bounds the seeds of one flag.
const MaxSeeds = 100_000

// Seeds is a flag with several seeds: numbers and ranges such as 1,2,5-7. It adds them to a list
// each time it is given. read reads one number.
func Seeds[T any](target *[]T, read func(number string) (T, error)) pflag.Value {
	return List(target, "N,N-M,...", func(text string) (all []T, err error) {
		for part := range strings.SplitSeq(text, ",") {
			numbers, err := seedRange(strings.TrimSpace(part))
			if err == nil && len(*target)+len(all)+len(numbers) > MaxSeeds {
				err = fmt.Errorf("has more than %d seeds", MaxSeeds)
			}
			if err != nil {
				return nil, err
			}
			for _, number := range numbers {
				seed, err := read(number)
				if err != nil {
					return nil, err
				}
				all = append(all, seed)
			}
		}
		return all, nil
	})
}

// seedRange returns the numbers of a range such as 5-7. Any other text is returned as it is.
func seedRange(part string) ([]string, error) {
	from, to, _ := strings.Cut(part, "-")
	first, err := strconv.ParseUint(from, 10, 64)
	last, lastErr := strconv.ParseUint(to, 10, 64)
	switch {
	case errors.Join(err, lastErr) != nil:
		return []string{part}, nil
	case last < first:
		return nil, fmt.Errorf("%q: a range begins with its smallest number: %d-%d", part, last, first)
	case last-first >= MaxSeeds:
		return nil, fmt.Errorf("%q: has more than %d seeds", part, MaxSeeds)
	}
	var numbers []string
	for n := first; n <= last; n++ {
		if numbers = append(numbers, strconv.FormatUint(n, 10)); n == math.MaxUint64 {
			break
		}
	}
	return numbers, nil
}
