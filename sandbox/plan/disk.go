package plan

import (
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// planDisk decides how the disk limit is enforced. A file system of its own costs a run more, so only
// a policy that demands a hard limit gets it.
func planDisk(transfer string, pol policy.Policy, host spec.Host) (string, error) {
	refuse := func(rule, hint string) (string, error) {
		return "", &policy.FieldError{Field: "disk-bound", Value: "hard", Rule: rule, Hint: hint}
	}
	switch {
	case !pol.HardDisk:
		return spec.DiskFileSize, nil
	case transfer == spec.TransferCopy:
		return refuse("is not possible with an engine that files are copied to", "have the files measured: --disk-bound auto")
	case host.NoLoop != "":
		return refuse(host.NoLoop, "run as root on Linux with loop devices and e2fsprogs, or have the files measured: --disk-bound auto")
	}
	return spec.DiskLoop, nil
}
