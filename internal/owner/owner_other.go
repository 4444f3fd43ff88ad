//go:build !linux

package owner

import "os"

// Without /proc the life of another process is not known for certain; the garbage
// collection then goes by deadlines alone.

// BootID is the name of this machine.
func BootID() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// PIDNamespace is always the same here.
func PIDNamespace() string { return "host" }

// ProcessStart knows nothing.
func ProcessStart(int) (string, bool) { return "", false }

func processGone(int) bool { return false }
