package contract

import "errors"

// SetWord reads "captured": the stream is kept, and nothing is expected of it.
func (s *Stream) SetWord(word string) error {
	switch word {
	case "captured":
		*s = Stream{}
		return nil
	case "expected":
		return errors.New("must say what is expected: {expected: TEXT} or {pattern: REGEXP}")
	}
	return errors.New(`must be captured, {expected: TEXT} or {pattern: REGEXP}`)
}

// SetWord reads the path of an artifact of which nothing else is said.
func (a *ArtifactSpec) SetWord(word string) error {
	*a = ArtifactSpec{Path: word}
	return nil
}
