package stage

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHogText(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		hogs []hog
		want string
	}{
		"nobody":       {nil, "the disk of ./final was nearly full, and no run of this state directory holds much of it"},
		"small ones":   {[]hog{{"a", "", 0}}, "the disk of ./final was nearly full, and no run of this state directory holds much of it"},
		"a neighbour":  {[]hog{{"me", "", 4096}, {"a", "hog", 900 * mib}}, "the disk of ./final was nearly full: of the runs at that time run a (hog) holds 900MiB"},
		"itself":       {[]hog{{"me", "x", 900 * mib}, {"a", "", mib}}, "the disk of ./final was nearly full: of the runs at that time this run holds 900MiB"},
		"both":         {[]hog{{"me", "x", 300 * mib}, {"a", "", 500 * mib}}, "the disk of ./final was nearly full: of the runs at that time run a holds 500MiB, this run holds 300MiB"},
		"three of all": {[]hog{{"a", "", 4 * mib}, {"b", "", 3 * mib}, {"c", "", 2 * mib}, {"d", "", 2 * mib}}, "the disk of ./final was nearly full: of the runs at that time run a holds 4MiB, run b holds 3MiB, run c holds 2MiB"},
	} {
		require.Equal(t, test.want, hogText(test.hogs, "me"), name)
	}
}
