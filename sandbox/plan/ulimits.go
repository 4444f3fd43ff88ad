package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// planUlimits adds to the requested limits: no core files, and a number of open files that
// the engine itself may have. A higher number makes the start fail (setrlimit: operation not
// permitted).
func planUlimits(asked []spec.Ulimit, limits policy.Limits, pol policy.Policy, host spec.Host) ([]spec.Ulimit, error) {
	byName := map[string]spec.Ulimit{"core": {Name: "core"}}
	noFile := limits.NoFile
	if noFile == 0 && host.NoFile > 0 {
		noFile = min(usualNoFile, host.NoFile)
		if pol.Max.NoFile > 0 {
			noFile = min(noFile, pol.Max.NoFile)
		}
	}
	if noFile > 0 {
		if err := checkNoFile("nofile", noFile, pol, host); err != nil {
			return nil, err
		}
		byName["nofile"] = spec.Ulimit{Name: "nofile", Soft: noFile, Hard: noFile}
	}
	for _, u := range asked {
		if !ulimitNames[u.Name] || u.Soft < -1 || u.Hard < -1 || (u.Hard >= 0 && (u.Soft > u.Hard || u.Soft < 0)) {
			return nil, &policy.FieldError{Field: "ulimit", Value: fmt.Sprintf("%s=%d:%d", u.Name, u.Soft, u.Hard),
				Rule: "must be a known limit with soft at most hard"}
		}
		if u.Name == "nofile" {
			if err := checkNoFile("ulimit", u.Hard, pol, host); err != nil {
				return nil, err
			}
		}
		if u.Name != fileSize { // a limit of the job
			byName[u.Name] = u
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b spec.Ulimit) int { return strings.Compare(a.Name, b.Name) }), nil
}

// fileSize is the name of the limit of a file's size.
const fileSize = "fsize"

// planFileSize bounds each file by the disk limit: one call can make a file of any size before a
// measurement sees it. A request may ask for less.
func planFileSize(asked []spec.Ulimit, disk policy.Size) *spec.FileSize {
	size := spec.FileSize{Soft: int64(disk), Hard: int64(disk)}
	for _, u := range asked {
		if u.Name != fileSize {
			continue
		}
		size = spec.FileSize{Soft: atMost(u.Soft, disk), Hard: atMost(u.Hard, disk)}
	}
	return &size
}

// atMost is the lower one of a limit, -1 for none, and the disk limit.
func atMost(limit int64, disk policy.Size) int64 {
	if limit < 0 {
		return int64(disk)
	}
	return min(limit, int64(disk))
}

// usualNoFile is a number of open files that programs expect.
const usualNoFile = 65536

// checkNoFile compares a number of open files, -1 for no limit, with what the
// engine can grant and the policy permits.
func checkNoFile(field string, n int64, pol policy.Policy, host spec.Host) error {
	value := fmt.Sprintf("nofile=%d", n)
	if host.NoFile > 0 && (n > host.NoFile || n < 0) {
		return &policy.FieldError{Field: field, Value: value, Rule: fmt.Sprintf("the engine itself may open %d", host.NoFile)}
	}
	if ceiling := pol.Max.NoFile; ceiling > 0 && (n > ceiling || n < 0) {
		return &policy.FieldError{Field: field, Value: value, Rule: fmt.Sprintf("above the policy's maximum of %d", ceiling)}
	}
	return nil
}

var ulimitNames = map[string]bool{
	"as": true, "core": true, "cpu": true, "data": true, "fsize": true, "locks": true, "memlock": true,
	"msgqueue": true, "nice": true, "nofile": true, "nproc": true, "rss": true, "rtprio": true,
	"rttime": true, "sigpending": true, "stack": true,
}
