package plan

import (
	"cmp"
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Isolation is what a container of a class has between its program and the machine. own says
// that no other run has its user.
func Isolation(class spec.Class, host spec.Host, own bool) policy.Isolation {
	uid, gid, _ := strings.Cut(class.User, ":")
	kernel := spec.OwnKernel(cmp.Or(class.Runtime, host.DefaultRuntime))
	return policy.Isolation{
		Root: uid == "0" || gid == "0", Seccomp: host.Seccomp && !kernel, OwnKernel: kernel,
		UserNamespace: host.UserNamespace, LSM: host.LSM, OwnUID: own, Terminals: !kernel,
	}
}

// checkIsolation refuses a plan that is less isolated than its request or the policy demands.
func checkIsolation(req spec.Request, pol policy.Policy, class spec.Class, host spec.Host) error {
	has := Isolation(class, host, class.User == spec.LeasedUser && host.OwnUIDs)
	return pol.CheckIsolation(has, req.Isolation)
}
