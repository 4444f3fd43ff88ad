package sandbox

import "path/filepath"

// RecordDir is the folder of a run's record, whether or not it is there.
func (s *Store) RecordDir(id string) string { return filepath.Join(s.runsDir(), id) }

// TreeDir is the folder of a record that keeps what a program made and changed in the
// i-th tree of its Spec, with the paths that the files have in the tree.
func (s *Store) TreeDir(id string, i int) string { return keptTree(s.RecordDir(id), i) }
