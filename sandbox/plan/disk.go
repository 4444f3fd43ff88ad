package plan

import (
	"cmp"
	"fmt"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// planDisk decides how the disk limit is enforced: by a quota where there is one. A file system of
// its own costs a run more, so it is for a policy that demands a hard limit.
func planDisk(req spec.Request, transfer string, pol policy.Policy, host spec.Host) (string, error) {
	refuse := func(rule string) (string, error) {
		return "", &policy.FieldError{Field: "disk-bound", Value: "hard", Rule: rule, Hint: "see what this machine can enforce with: sandbox doctor"}
	}
	// What a kernel of its own writes does not count for the program.
	quota := host.Disk.Quota && !spec.OwnKernel(cmp.Or(req.Runtime, host.DefaultRuntime))
	switch {
	case transfer == spec.TransferCopy && pol.HardDisk:
		return refuse("the disk limit cannot be enforced on an engine that files are copied to")
	case transfer == spec.TransferCopy:
		return spec.DiskFileSize, nil
	case quota:
		return spec.DiskQuota, nil
	case !pol.HardDisk:
		return spec.DiskFileSize, nil
	case host.Disk.Loop:
		return spec.DiskLoop, nil
	}
	return refuse(fmt.Sprintf("the disk limit cannot be enforced here: a quota %s; a file system in a file %s",
		cmp.Or(host.Disk.NoQuota, "is not possible with the runtime"), cmp.Or(host.Disk.NoLoop, "is not possible")))
}
