package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// owner identifies the process that drives a run, so that a later one can tell
// whether it still lives. A process ID alone is not enough: it is used again,
// means nothing on another machine, and another process in another PID
// namespace.
type owner struct {
	// boot identifies the machine since it was started.
	boot string
	// namespace is the PID namespace.
	namespace string
	pid       int
	// start is the time at which the process was started, in the kernel's
	// ticks.
	start string
}

// fate is what can be told about an owner.
type fate int

const (
	fateUnknown fate = iota
	fateAlive
	fateDead
)

// thisOwner is this process.
var thisOwner = sync.OnceValue(func() owner {
	pid := os.Getpid()
	start, _ := processStart(pid)
	return owner{boot: bootID(), namespace: pidNamespace(), pid: pid, start: start}
})

// String is the form of the label [LabelOwner].
func (o owner) String() string {
	return strings.Join([]string{o.boot, o.namespace, strconv.Itoa(o.pid), o.start}, "/")
}

func parseOwner(text string) (owner, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return owner{}, fmt.Errorf("owner %q is not of the form boot/namespace/pid/start", text)
	}
	pid, err := strconv.Atoi(parts[2])
	if err != nil || pid <= 0 {
		return owner{}, fmt.Errorf("owner %q holds no process ID", text)
	}
	return owner{boot: parts[0], namespace: parts[1], pid: pid, start: parts[3]}, nil
}

// fate tells whether the owner lives, as far as this process can see. An owner
// of another machine or PID namespace cannot be seen; one of an earlier boot of
// this machine cannot be told from one of another machine.
func (o owner) fate() fate {
	self := thisOwner()
	if o.boot != self.boot || o.namespace != self.namespace || self.start == "" {
		return fateUnknown
	}
	switch start, found := processStart(o.pid); {
	case found && start == o.start:
		return fateAlive
	case found, processGone(o.pid):
		return fateDead
	}
	// It is there, but we may not look at it (proc mounted with hidepid).
	return fateUnknown
}
