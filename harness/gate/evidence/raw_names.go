package evidence

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Boundary is where the gates find the workspace in their containers.
const Boundary = "/repo"

// BaselineSet is the set of the gates that ran on the baseline. The gates themselves are
// the set with the empty name.
const BaselineSet = "baseline"

// repeatPrefix begins the names of the sets that repeat the gates.
const repeatPrefix = "repeat-"

// RepeatSet is the set of the k-th pass over the gates; the second is the first that
// repeats.
func RepeatSet(k int) string { return repeatPrefix + strconv.Itoa(k) }

// IsRepeat says whether a set repeats the gates.
func IsRepeat(set string) bool { return strings.HasPrefix(set, repeatPrefix) }

// SetDir is the folder of the raw files of a set.
func SetDir(set string) string { return path.Join(RawDir, set) }

// RawFile is the raw file of one gate of a set, such as "stdout.log", "stderr.log",
// "result.json", "outputs.json" or "report".
func RawFile(set string, index int, name string) string {
	return path.Join(SetDir(set), Number(index)+"."+name)
}

// OutputDir is the folder of what one gate of a set made. The baseline keeps nothing.
func OutputDir(set string, index int) string {
	if set == "" {
		return path.Join(OutputsDir, Number(index))
	}
	return path.Join(SetDir(set), "outputs", Number(index))
}

// Number is the index of a gate in names of files.
func Number(index int) string { return fmt.Sprintf("%02d", index) }

// Sets are the names of the sets that a manifest asks for, in the order in which they
// run.
func Sets(m RunManifest) []string {
	var sets []string
	if m.Baseline != "" {
		sets = append(sets, BaselineSet)
	}
	sets = append(sets, "")
	for k := 2; k <= m.Mode.Repeats; k++ {
		sets = append(sets, RepeatSet(k))
	}
	return sets
}
