package invoke

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
)

// origin tells the files of a run from all others in its output directory. The rule is
// the same for both engines: a name that was there before is not of the run, whatever
// was done to it, since the same bytes written again cannot be told from none.
type origin struct {
	dir    string // the output directory
	before stamps
	// created are, in the sandbox, the names that were carried over as new, with the
	// SHA-256 of the files among them: what else is there now somebody else made. It is
	// nil on the host, where that cannot be told.
	created map[string]string
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
	case o.created != nil && !o.carried(name):
		return "was made by somebody else during the run"
	}
	return ""
}

func (o *origin) carried(name string) bool {
	_, was := o.created[name]
	return was
}

// changed says that a file is not any more what was carried over.
func (o *origin) changed(a Artifact) bool {
	return o != nil && o.created[a.Path] != "" && o.created[a.Path] != a.SHA256
}

// path is that of an artifact, if it is a regular file of the run; otherwise empty.
func (o *origin) path(root *os.Root, name string) string {
	if root == nil {
		return ""
	}
	info, err := fsx.LstatBelow(root, filepath.FromSlash(name))
	if err != nil || !info.Mode().IsRegular() || o.foreign(name, info) != "" {
		return ""
	}
	return filepath.Join(o.dir, filepath.FromSlash(name))
}
