package plan

import (
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// checkUnenforced refuses a limit that the request names and the engine cannot enforce. A request
// can name no other one of them than that of processes.
func checkUnenforced(req spec.Request, pol policy.Policy, host spec.Host) error {
	if req.Limits.PIDs == 0 || pol.AllowUnenforced || !slices.Contains(host.Unenforced, spec.LimitPIDs) {
		return nil
	}
	return &policy.FieldError{Field: "pids-limit", Value: fmt.Sprint(req.Limits.PIDs), Rule: "is not enforced by this engine",
		Hint: "leave --pids-limit out, or permit such runs with SANDBOX_ALLOW_UNENFORCED=true or in the user's configuration"}
}

// planSeccomp names the system call filter.
func planSeccomp(host spec.Host) spec.Seccomp {
	if slices.Contains(host.Unenforced, spec.LimitSeccomp) {
		return spec.Seccomp{Name: host.Filter}
	}
	return spec.DefaultSeccomp()
}
