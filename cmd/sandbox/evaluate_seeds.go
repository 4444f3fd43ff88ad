package main

import (
	"errors"
	"strconv"
	"strings"
)

// seedsFlag is a list of seeds: whole numbers that Python takes.
type seedsFlag struct{ target *[]uint32 }

func (f *seedsFlag) String() string {
	if f.target == nil {
		return "" // the zero value that flag packages compare with
	}
	texts := make([]string, len(*f.target))
	for i, seed := range *f.target {
		texts[i] = strconv.FormatUint(uint64(seed), 10)
	}
	return strings.Join(texts, ",")
}

func (f *seedsFlag) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		seed, err := strconv.ParseUint(strings.TrimSpace(part), 10, 32)
		if err != nil {
			return errors.New("must be whole numbers from 0 to 4294967295, as in 1,2,3")
		}
		*f.target = append(*f.target, uint32(seed))
	}
	return nil
}

func (f *seedsFlag) Type() string { return "S,S,..." }
