// Package owner tells which process made something on an engine, and whether that
// process still lives.
package owner

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Labels of everything that a process makes on an engine and may leave there when
// it dies. A sweep goes by them.
const (
	LabelManaged  = "org.evalbox.managed"
	LabelOwner    = "org.evalbox.owner"
	LabelDeadline = "org.evalbox.deadline"
	LabelPart     = "org.evalbox.part"
)

// An Owner identifies the process that owns something, such as a run, so that a
// later one can tell whether it still lives. A process ID alone is not enough: it
// is used again, means nothing on another machine, and another process in another
// PID namespace.
type Owner struct {
	// Boot identifies the machine since it was started.
	Boot string
	// Namespace is the PID namespace.
	Namespace string
	PID       int
	// Start is the time at which the process was started, in the kernel's
	// ticks.
	Start string
}

// A Fate is what can be told about an owner.
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

// Fate tells whether the owner lives, as far as this process can see. An owner
// of another machine or PID namespace cannot be seen; one of an earlier boot of
// this machine cannot be told from one of another machine.
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
	// It is there, but we may not look at it (proc mounted with hidepid).
	return Unknown
}
