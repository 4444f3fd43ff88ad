//go:build !linux

package owner

import "os"

// Without /proc the life of another process cannot be told safely; sweeping then
// goes by deadlines alone.

// BootID is the name of this machine.
func BootID() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// PIDNamespace is the only one there is.
func PIDNamespace() string { return "host" }

// ProcessStart knows nothing.
func ProcessStart(int) (string, bool) { return "", false }

func processGone(int) bool { return false }
