package hostpath

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// VerifiedPath is a path of the host, and the file to which it referred when it was checked.
// The engine mounts it later, by name. Meanwhile another user who may rename files there
// could replace it with a link or another file.
type VerifiedPath struct {
	// Field is the field of a [spec.PathError].
	Field, Path string
	// Info is that of the file at the time of the check.
	Info fs.FileInfo
	// copied says that the program gets a copy. [Verified.Guard] checks the copied file.
	copied bool
}

const ruleReplaced = "was replaced while the run was prepared"

// Check verifies that the path still refers to the same file, without a link. The error is
// a [*spec.PathError].
func (p VerifiedPath) Check() error {
	now, err := os.Lstat(p.Path)
	if err == nil && os.SameFile(now, p.Info) && fsx.RealPath(p.Path) == p.Path {
		return nil
	}
	return p.replaced()
}

func (p VerifiedPath) replaced() error {
	return &spec.PathError{Field: p.Field, Path: p.Path, Rule: ruleReplaced}
}

// Verified are the verified paths of a run.
type Verified []VerifiedPath

// verify records the files that the entries of a mount table refer to, and those that its
// masks hide.
func verify(layout spec.Layout) (Verified, error) {
	var all Verified
	add := func(field, path string, copied bool) error {
		info, err := os.Lstat(path)
		if err != nil {
			return pathProblem(field, path, err)
		}
		all = append(all, VerifiedPath{field, path, info, copied})
		return nil
	}
	for _, e := range layout.Entries {
		if e.Source == "" {
			continue
		}
		if err := add(e.Role, e.Source, e.Role == spec.RoleTree); err != nil {
			return nil, err
		}
	}
	for _, mask := range layout.Masks {
		e, rel, ok := layout.Lookup(mask.Target)
		if !ok || e.Role == spec.RoleTree || e.Source == "" || rel == "." {
			continue
		}
		if err := add("mask", filepath.Join(e.Source, filepath.FromSlash(rel)), false); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Check verifies all paths but those that are copied.
func (all Verified) Check() error {
	for _, p := range all {
		if p.copied {
			continue
		}
		if err := p.Check(); err != nil {
			return err
		}
	}
	return nil
}

// CheckAt verifies the mounted path at source, if it is one of them.
func (all Verified) CheckAt(source string) error {
	for _, p := range all {
		if p.Path == source && p.Field != "mask" && !p.copied {
			return p.Check()
		}
	}
	return nil
}

// Guard verifies, before do, that an open directory, or a name in it, is still the file
// that was verified at source. Reading through the open directory then cannot reach
// another file.
func (all Verified) Guard(source, name string, do func(*os.Root) error) func(*os.Root) error {
	return func(root *os.Root) error {
		for _, p := range all {
			if p.Path != source || p.Field == "mask" {
				continue
			}
			if now, err := root.Lstat(name); err != nil || !os.SameFile(now, p.Info) {
				return p.replaced()
			}
		}
		return do(root)
	}
}
