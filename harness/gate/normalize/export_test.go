package normalize

import "slices"

// IsTested reports whether rules leave a line alone.
func IsTested(line []byte) bool {
	return slices.ContainsFunc(tested(), func(p pattern) bool { return p.Match(line) })
}

// HiddenByHints are the rules that match a line although their hints say that they cannot.
func (n *Normalizer) HiddenByHints(line []byte) (names []string) {
	patterns := append(tested(), compared()...)
	for _, r := range n.rules {
		patterns = append(patterns, r.pattern)
	}
	for _, l := range leftovers() {
		patterns = append(patterns, l.pattern)
	}
	for _, p := range append(patterns, refusals(), missing(), noNetwork()) {
		if p.Match(line) && !p.mayMatch(shape(nil, line)) {
			names = append(names, p.String())
		}
	}
	return names
}
