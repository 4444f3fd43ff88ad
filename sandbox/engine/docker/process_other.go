//go:build !linux

package docker

import "context"

// engineNoFile cannot be told here: the engine runs in a virtual machine.
func engineNoFile(context.Context, string) int64 { return 0 }

// sameMachine takes a socket for an engine of this machine: there is nothing that
// could be looked at in its virtual machine, and nothing that depends on this.
func sameMachine(context.Context, string, string) bool { return true }

func engineIdentity(context.Context, string) string { return "" }

func hasSwap() bool { return true }
