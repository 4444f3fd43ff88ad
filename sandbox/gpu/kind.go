package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind returns the kind of the GPUs that a request for want gets: a result of GPUs of one kind
// is not a result of another. A run gets its GPUs when it begins, so all GPUs that are not
// quarantined must be of one kind.
func Kind(listed []Listed, want string) (string, error) {
	var kinds []string
	count := 0
	for _, g := range listed {
		if g.State == StateQuarantined {
			continue
		}
		count++
		kind := ""
		if g.Name != "" {
			kind = fmt.Sprintf("%s, %d MiB", g.Name, g.TotalBytes>>20)
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	switch {
	case len(kinds) > 1:
		return "", fmt.Errorf("the GPUs are of several kinds (%s)", strings.Join(kinds, "; "))
	case len(kinds) == 0 || kinds[0] == "":
		return "", errors.New("the kind of the GPUs is not known")
	case want == "all":
		return fmt.Sprintf("%d × %s", count, kinds[0]), nil
	}
	return kinds[0], nil
}
