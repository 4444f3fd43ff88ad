package stage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/hostpath"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// readScript reads the program.
func readScript(from string) ([]byte, error) {
	unreadable := func(err error) ([]byte, error) {
		return nil, &spec.PathError{Field: "script", Path: from, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	source, err := os.OpenFile(from, os.O_RDONLY|fsx.OpenFlags, 0)
	if err != nil {
		return unreadable(err)
	}
	defer source.Close()
	// Links were followed when the run was planned; one that is there now is new.
	opened, err := source.Stat()
	if err == nil && !opened.Mode().IsRegular() {
		err = errors.New("is not a regular file")
	}
	if err != nil {
		return unreadable(err)
	}
	if err := (hostpath.VerifiedPath{Field: "script", Path: from, Info: opened}).Check(); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(source, hostpath.MaxScript+1))
	if err != nil {
		return unreadable(err)
	}
	if len(text) > hostpath.MaxScript {
		return nil, &spec.PathError{Field: "script", Path: from, Rule: fmt.Sprintf("has more than %d bytes", hostpath.MaxScript)}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, &spec.PathError{Field: "script", Path: from, Rule: "is empty"}
	}
	return text, nil
}

// writeProgram copies the program into the record: an editor may save over the original while the
// run goes on, and the record shall hold the program that really ran. A container that has waited
// has the file mounted already, empty and read-only.
func (s *Stage) writeProgram(text []byte) (path string, err error) {
	dir := filepath.Join(s.Dir, record.ProgramDir)
	path = filepath.Join(dir, filepath.Base(s.Plan.Job.Script))
	if s.mountedAhead() {
		err = os.WriteFile(path, text, 0)
	} else if err = fsx.MkdirReadable(dir); err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err == nil && len(text) > 0 {
		err = os.Chmod(path, 0o444) // whatever the umask is
	}
	if err != nil {
		return "", record.StateError(path, "cannot be written", err)
	}
	return path, nil
}

// Permission bits of a directory, for its owner, and of a file.
const (
	mayRead     fs.FileMode = 0o500
	mayWrite    fs.FileMode = 0o300
	mayReadFile fs.FileMode = 0o400
)

// checkReadable refuses a mounted file or directory that the program could not read. The
// program of a caller who is root runs as another user, and would fail in a puzzling way.
func checkReadable(field, path, user string) error {
	info, err := os.Stat(path)
	if err != nil {
		return &spec.PathError{Field: field, Path: path, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	need := mayRead
	if !info.IsDir() {
		need = mayReadFile
	}
	owner, group, ok := fsx.OwnerOf(info)
	uid, gid, err := numericUser(user)
	if !ok || err != nil {
		return err
	}
	if !permits(info.Mode(), uid == owner, gid == group, need) {
		return &spec.PathError{Field: field, Path: path,
			Rule: fmt.Sprintf("cannot be read by user %s of the program (mode %04o); chmod it, or choose another --user", user, info.Mode().Perm())}
	}
	return nil
}

// permits reports whether a mode gives a user all of need. As in the kernel, only
// the first class that fits counts.
func permits(mode fs.FileMode, owner, group bool, need fs.FileMode) bool {
	switch {
	case owner:
	case group:
		need >>= 3
	default:
		need >>= 6
	}
	return mode&need == need
}

// numericUser splits the uid:gid of a plan.
func numericUser(user string) (uid, gid int, err error) {
	if _, err := fmt.Sscanf(user, "%d:%d", &uid, &gid); err != nil {
		return 0, 0, fmt.Errorf("user %q is not numeric uid:gid: %w", user, err)
	}
	return uid, gid, nil
}
