//go:build unix

package invoke

import (
	"cmp"
	"errors"
	"os"
	"syscall"
	"time"
)

// defaultGrace is that of the sandbox.
const defaultGrace = 5 * time.Second

// groupPoll is how often a group is looked at while it ends.
const groupPoll = 50 * time.Millisecond

// endGroup ends what is left of a process group: SIGTERM, the grace period, SIGKILL,
// also when its leader is gone (E2 of the requirements). It reports whether the group
// is empty. The number of a group is not given to another process as long as it has a
// member.
func (h Host) endGroup(group int) bool {
	if !signalGroup(group, syscall.SIGTERM) {
		return true
	}
	grace, kill := h.Clock.After(cmp.Or(h.Grace, defaultGrace)), h.Kill
	for waiting := true; waiting; {
		select {
		case <-grace:
			waiting = false
		case <-kill:
			waiting = false
		case <-h.Clock.After(groupPoll):
			if !groupLives(group) {
				return true
			}
		}
	}
	patience := h.Clock.After(drain)
	for {
		if !signalGroup(group, syscall.SIGKILL) || !groupLives(group) {
			return true
		}
		select {
		case <-patience:
			return false
		case <-h.Clock.After(groupPoll):
		}
	}
}

// signalGroup reports whether the group has members.
func signalGroup(group int, signal syscall.Signal) bool {
	err := syscall.Kill(-group, signal)
	return err == nil || errors.Is(err, os.ErrPermission) // EPERM: members of another user
}
