package invoke

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/hostfile"
)

// origin tells the files of a run from all others in its output directory. The rule is
// the same for both engines: a name that was there before is not of the run, whatever
// was done to it, since the same bytes written again cannot be told from none.
type origin struct {
	before stamps
	// created are, in the sandbox, the names that were carried over as new: what else is
	// there now somebody else made. It is nil on the host, where that cannot be told.
	created map[string]bool
}

// foreign says why a regular file is not of the run; empty if it is. A nil origin knows
// nothing.
func (o *origin) foreign(name string, info fs.FileInfo) string {
	switch {
	case o == nil:
	case o.before.names[name]:
		return "was there before the run"
	case o.before.hold(info):
		return "was there before the run, by another name"
	case o.created != nil && !o.created[name]:
		return "was made by somebody else during the run"
	}
	return ""
}

// path is that of an artifact, if it is a regular file of the run; otherwise empty.
func (o *origin) path(root *os.Root, dir, name string) string {
	if root == nil {
		return ""
	}
	info, err := hostfile.LstatBelow(root, filepath.FromSlash(name))
	if err != nil || !info.Mode().IsRegular() || o.foreign(name, info) != "" {
		return ""
	}
	return filepath.Join(dir, filepath.FromSlash(name))
}
