// Package owner identifies the process that made an object on an engine, and finds out
// whether that process still lives.
package owner

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Labels of every object that a process makes on an engine and may leave there when it
// dies. The garbage collection reads them.
const (
	LabelManaged  = "org.evalbox.managed"
	LabelOwner    = "org.evalbox.owner"
	LabelDeadline = "org.evalbox.deadline"
	LabelPart     = "org.evalbox.part"
)

// An Owner identifies the process that owns an object, such as a run, so that a later
// process can find out whether it still lives. A process ID alone is not enough: it is
// used again, and it means another process on another machine or in another PID namespace.
type Owner struct {
	// Boot identifies the machine since it was started.
	Boot string
	// Namespace is the PID namespace.
	Namespace string
	PID       int
	// Start is the start time of the process in the kernel's ticks.
	Start string
}

// A Fate is the knowledge about the life of an owner.
type Fate int

// The fates.
const (
	Unknown Fate = iota
	Alive
	Dead
)

// This is this process.
var This = sync.OnceValue(func() Owner {
	pid := os.Getpid()
	start, _ := ProcessStart(pid)
	return Owner{Boot: BootID(), Namespace: PIDNamespace(), PID: pid, Start: start}
})

// String is the form of the label [LabelOwner].
func (o Owner) String() string {
	return strings.Join([]string{o.Boot, o.Namespace, strconv.Itoa(o.PID), o.Start}, "/")
}

// Parse reads what [Owner.String] wrote.
func Parse(text string) (Owner, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return Owner{}, fmt.Errorf("owner %q is not of the form boot/namespace/pid/start", text)
	}
	pid, err := strconv.Atoi(parts[2])
	if err != nil || pid <= 0 {
		return Owner{}, fmt.Errorf("owner %q holds no process ID", text)
	}
	return Owner{Boot: parts[0], Namespace: parts[1], PID: pid, Start: parts[3]}, nil
}

// Fate reports whether the owner lives, as far as this process can see. It cannot see an
// owner on another machine or in another PID namespace, and it cannot distinguish an
// earlier boot of this machine from another machine.
func (o Owner) Fate() Fate {
	self := This()
	if o.Boot != self.Boot || o.Namespace != self.Namespace || self.Start == "" {
		return Unknown
	}
	switch start, found := ProcessStart(o.PID); {
	case found && start == o.Start:
		return Alive
	case found, processGone(o.PID):
		return Dead
	}
	// The process exists, but /proc hides it (mounted with hidepid).
	return Unknown
}

// Gone reports whether the process that left a run or a container is gone, and why. text is what
// [Owner.String] wrote. A process that cannot be seen from here counts as gone after the deadline, and
// never without a deadline. So does the process of a text that cannot be read.
func Gone(text string, deadline, now time.Time) (gone bool, why string) {
	unseen := "its owner cannot be seen from here"
	if by, err := Parse(text); err != nil {
		unseen = err.Error()
	} else {
		switch by.Fate() {
		case Alive:
			return false, fmt.Sprintf("its owner, process %d, lives", by.PID)
		case Dead:
			return true, fmt.Sprintf("its owner, process %d, is gone", by.PID)
		case Unknown:
		}
	}
	switch {
	case deadline.IsZero():
		return false, unseen + ", and it has no deadline"
	case now.After(deadline):
		return true, unseen + ", and its deadline is over"
	}
	return false, unseen + ", and its deadline is " + deadline.Format(time.RFC3339)
}
