//go:build !linux

package sandbox

import "context"

// engineNoFile cannot be told here: the engine runs in a virtual machine.
func engineNoFile(context.Context, string) int64 { return 0 }

func engineIdentity(context.Context, string) string { return "" }
