package cli

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeeds(t *testing.T) {
	read := func(number string) (int64, error) { return strconv.ParseInt(number, 10, 64) }
	for text, want := range map[string][]int64{
		"1":           {1},
		"1, 2,5-7":    {1, 2, 5, 6, 7},
		"-2,3-3":      {-2, 3},
		"0-1,-1":      {0, 1, -1},
		" 1 , 10-12 ": {1, 10, 11, 12},
	} {
		var seeds []int64
		require.NoError(t, Seeds(&seeds, read).Set(text), text)
		require.Equal(t, want, seeds, text)
	}
	for text, want := range map[string]string{
		"3-1":         `"3-1": a range begins with its smallest number: 1-3`,
		"0-100000":    `"0-100000": has more than 100000 seeds`,
		"0-99998,1,2": "has more than 100000 seeds",
		"1-":          `strconv.ParseInt: parsing "1-": invalid syntax`,
		"":            `strconv.ParseInt: parsing "": invalid syntax`,
	} {
		var seeds []int64
		require.EqualError(t, Seeds(&seeds, read).Set(text), want, text)
	}
	var most []uint64
	flag := Seeds(&most, func(number string) (uint64, error) { return strconv.ParseUint(number, 10, 64) })
	require.NoError(t, flag.Set("18446744073709551614-18446744073709551615"))
	require.NoError(t, flag.Set("7"), "the flag adds to the list")
	require.Len(t, most, 3)
}
