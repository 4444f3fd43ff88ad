package sandbox

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/plan"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// isolation is what is between the program and the machine: as planned, and, once there is a
// container, as its init sees it.
func (a *run) isolation() policy.Isolation {
	host := hostOf(a.info)
	uid, _, _ := strings.Cut(a.spec.Class.User, ":")
	id, err := strconv.Atoi(uid)
	// No request can name a user ID of the pool, so this one is leased.
	own := err == nil && a.runner.users.pool(a.info).Contains(id) && host.OwnUIDs
	is := plan.Isolation(a.spec.Class, host, own)
	if a.container == nil {
		return is
	}
	return isolationSeen(is, a.container.Ready())
}

// isolationSeen leaves what the container's init confirms. Init sees nothing of a runtime with
// its own kernel, and the start of a reopened container is unknown.
func isolationSeen(is policy.Isolation, seen wire.Ready) policy.Isolation {
	if seen.Build == "" || is.OwnKernel {
		return is
	}
	is.Seccomp = is.Seccomp && seen.Seccomp == 2
	is.Root = seen.UID == 0 || seen.GID == 0
	terminals, ok := seen.MountAt(spec.TerminalsDir)
	is.Terminals = ok && strings.Contains(","+terminals.Super+",", fmt.Sprintf(",max=%d,", spec.Terminals))
	return is
}

// checkIsolation refuses a container that is less isolated than planned, if that is demanded.
func (a *run) checkIsolation() error {
	is := a.isolation()
	return a.runner.policy.CheckIsolation(is, a.request.Isolation)
}

// wireIsolation is the wire form, with the name of the system call filter.
func (a *run) wireIsolation(filter string) result.Isolation {
	is := a.isolation()
	grade, missing := is.Grade()
	said := result.Isolation{
		Grade: string(grade), Missing: missing, Runtime: a.spec.Class.Runtime, OwnKernel: is.OwnKernel,
		UserNamespace: is.UserNamespace, LSM: a.info.LSM, UID: result.SharedUID, TerminalsBounded: is.Terminals,
	}
	if is.Seccomp {
		said.Seccomp = filter
	}
	if is.OwnUID {
		said.UID = result.OwnUID
	}
	return said
}
