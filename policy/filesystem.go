package policy

// FilesystemLevel is a level of access to the host's files (CX-03).
type FilesystemLevel string

// Levels of file access, from closed to open. Each one reads what the one before it
// reads.
const (
	// Minimal reads the working directory and writes nothing.
	Minimal FilesystemLevel = "minimal"
	// Standard reads the root and writes the working directory.
	Standard FilesystemLevel = "standard"
	// Extended reads folders outside of the root as well, and writes folders of
	// the root that are listed.
	Extended FilesystemLevel = "extended"
	// Elevated reads and writes what is listed, system paths included; it needs an
	// approval.
	Elevated FilesystemLevel = "elevated"
)

// FilesystemLevels are all levels, from closed to open.
func FilesystemLevels() []FilesystemLevel {
	return []FilesystemLevel{Minimal, Standard, Extended, Elevated}
}
