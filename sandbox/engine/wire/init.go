package wire

import (
	_ "embed" // for init
	"fmt"
	"strconv"
	"strings"
)

// leastTasks is a process limit under which runtimes start containers reliably. With a limit
// of 2 on a busy machine, more than one in ten starts by runc failed.
const leastTasks = 8

// InitTasks returns the number of threads that init has in a container whose program may have
// the given number of processes and threads. The container's limit is the sum. It is 1, or more
// if the sum would be too small to start a container reliably: see [InitArguments].
func InitTasks(programs int64) int64 { return max(1, leastTasks-programs) }

// InitArguments returns the arguments of init in a container whose program may have the given
// number of processes and threads.
func InitArguments(programs int64) []string {
	if idle := InitTasks(programs) - 1; idle > 0 {
		return []string{"-t", strconv.FormatInt(idle, 10)}
	}
	return []string{}
}

// Requests of the descriptor that init's option -c names.
const (
	// RequestStop and RequestKill mean the same as SIGTERM and SIGUSR1 from outside the container.
	RequestStop byte = 'T'
	RequestKill byte = 'K'
	// RequestGone means that the controller has gone, and that another one may take its place:
	// the orphan limit begins, but init waits for BYE without a limit. Before a job init exits.
	RequestGone byte = 'G'
)

var (
	//go:embed init_amd64
	initAMD64 []byte
	//go:embed init_arm64
	initARM64 []byte
	//go:embed init.build
	initBuild string
)

//go:generate ../../../cmd/sandbox-init/build.sh

// Init returns the static binary of PID 1 for an architecture, by Go's name or the kernel's.
func Init(arch string) ([]byte, error) {
	switch arch {
	case "amd64", "x86_64":
		return initAMD64, nil
	case "arm64", "aarch64":
		return initARM64, nil
	}
	return nil, fmt.Errorf("there is no sandbox-init for the architecture %q: it is built for amd64 and arm64", arch)
}

// BuildID returns the hash of init's sources, which init reports in its ready frame.
func BuildID() string {
	for line := range strings.Lines(initBuild) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "sources "); ok {
			return id
		}
	}
	return ""
}
