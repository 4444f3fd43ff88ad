package invoke

import (
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// maxNotWritten bounds how many names a result says were not carried over.
const maxNotWritten = 100

// leftOut is what the tool left and the output directory did not get.
type leftOut struct {
	// list is all of it, to be read.
	list []string
	// odd says of a name why it was not carried over.
	odd map[string]string
	// conflict is the first file that others had changed meanwhile, and cut the first
	// thing that a limit left out, or that could not be read; empty for none. The tool's
	// output is not whole then. Pipes, links and what Git executes are never carried over,
	// and are no such thing.
	conflict, cut string
}

// special are the kinds that are never carried over, whatever the limits are.
var special = []string{"symlink", "fifo", "socket", "device"}

// leftOutOf reads what the sandbox says of a run and of carrying over what it left. It
// is pure.
func leftOutOf(res result.Result, report tree.Report) leftOut {
	left := leftOut{odd: map[string]string{}}
	total := 0
	add := func(name, why string) (told string) {
		told = name + ": " + why
		left.odd[name] = why
		if total++; total <= maxNotWritten {
			left.list = append(left.list, told)
		}
		return told
	}
	first := func(of *string, told string) {
		if *of == "" {
			*of = told
		}
	}
	for _, change := range report.Changes {
		if change.State == tree.Applied {
			continue
		}
		told := add(change.Path, change.Change+", but "+change.Reason)
		if change.State == tree.Conflict {
			first(&left.conflict, told)
		}
	}
	complete := report.Complete
	for _, tree := range res.Trees {
		if tree.Target != OutputDir {
			continue
		}
		complete = complete && tree.Complete
		for _, skipped := range tree.Skipped {
			if _, told := left.odd[skipped.Path]; told {
				continue
			}
			if slices.Contains(special, skipped.Kind) {
				add(skipped.Path, "is a "+skipped.Kind+": "+skipped.Reason)
				continue
			}
			first(&left.cut, add(skipped.Path, skipped.Reason))
		}
	}
	if total > maxNotWritten {
		left.list = append(left.list, fmt.Sprintf("and %d more", total-maxNotWritten))
	}
	if !complete {
		first(&left.cut, "the list of changes is not whole")
	}
	if left.cut != "" {
		left.list = append(left.list, "and maybe more: what is beyond a limit is not looked at")
	}
	return left
}

// createdOf are the names that were carried over as new, with the SHA-256 of files.
func createdOf(res result.Result, report tree.Report) map[string]string {
	sums := map[string]string{}
	for _, tree := range res.Trees {
		if tree.Target == OutputDir {
			for _, entry := range tree.Created {
				sums[entry.Path] = entry.SHA256
			}
		}
	}
	names := map[string]string{}
	for _, change := range report.Changes {
		if change.State != tree.Applied || change.Change != "created" {
			continue
		}
		name := change.Path
		if change.PathBase64 != "" {
			raw, err := base64.StdEncoding.DecodeString(change.PathBase64)
			if err != nil {
				continue // the sandbox writes no such thing
			}
			name = string(raw)
		}
		names[name] = sums[change.Path]
	}
	return names
}

// changes counts what the tool changed in the output directory.
func changes(res result.Result) int {
	for _, tree := range res.Trees {
		if tree.Target == OutputDir {
			return len(tree.Created) + len(tree.Changed) + len(tree.Deleted)
		}
	}
	return 0
}
