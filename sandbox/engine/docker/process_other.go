//go:build !linux

package docker

import (
	"context"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// engineNoFile is unknown here: the engine runs in a virtual machine.
func engineNoFile(context.Context, string) int64 { return 0 }

// sameMachine treats a socket as an engine on this machine: its virtual machine cannot be
// inspected, and nothing depends on the answer.
func sameMachine(context.Context, string, string) bool { return true }

func engineIdentity(context.Context, string) string { return "" }

func hasSwap() bool { return true }

// awaitProcess never sees the process of a container here.
func awaitProcess(int, string) bool { return false }

// cgroupUsage knows nothing: the containers are on another machine.
func cgroupUsage(int, string) (engine.Usage, bool) { return engine.Usage{}, false }
