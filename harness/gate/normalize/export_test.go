package normalize

import "slices"

// IsTested reports whether rules leave a line alone, for the external tests.
func IsTested(line []byte) bool {
	return slices.ContainsFunc(tested(), func(p pattern) bool { return p.Match(line) })
}
