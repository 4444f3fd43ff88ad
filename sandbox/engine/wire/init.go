package wire

import (
	_ "embed" // for init
	"fmt"
	"strings"
)

// InitThreads is the number of processes and threads that init takes of a container's
// limit.
const InitThreads = 1

var (
	//go:embed init_amd64
	initAMD64 []byte
	//go:embed init_arm64
	initARM64 []byte
	//go:embed init.build
	initBuild string
)

//go:generate ../../../cmd/sandbox-init/build.sh

// Init is the static binary of PID 1 for an architecture, in Go's name or the kernel's.
func Init(arch string) ([]byte, error) {
	switch arch {
	case "amd64", "x86_64":
		return initAMD64, nil
	case "arm64", "aarch64":
		return initARM64, nil
	}
	return nil, fmt.Errorf("there is no sandbox-init for the architecture %q: it is built for amd64 and arm64", arch)
}

// BuildID is the hash of the sources of init, which it tells in its ready frame.
func BuildID() string {
	for line := range strings.Lines(initBuild) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "sources "); ok {
			return id
		}
	}
	return ""
}
