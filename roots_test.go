package evalbox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// untrusted are the packages that handle directories which a program has written.
var untrusted = []string{"sandbox/collect", "sandbox/archive", "sandbox/tree", "sandbox/stage", "sandbox/engine/kubernetes/porter", "harness"}

// byPath are calls that name a file by its whole path: a process that can write to a directory on the
// way leads them elsewhere, by a link. What an untrusted program has written is only reached
// through an opened directory: an [os.Root], or a descriptor.
var byPath = map[string][]string{
	"os": {
		"Chdir", "Chmod", "Chown", "Chtimes", "CopyFS", "Create", "DirFS", "Lchown", "Link", "Lstat", "Mkdir", "MkdirAll", "Open", "OpenFile",
		"ReadDir", "ReadFile", "Readlink", "Remove", "RemoveAll", "Rename", "Stat", "Symlink", "Truncate", "WriteFile",
	},
	"filepath": {"EvalSymlinks", "Glob", "Walk", "WalkDir"},
	"unix":     {"Chmod", "Chown", "Getxattr", "Lchown", "Link", "Listxattr", "Lstat", "Mkdir", "Mknod", "Open", "Removexattr", "Rename", "Rmdir", "Setxattr", "Stat", "Symlink", "Truncate", "Unlink"},
	"syscall":  {"Chmod", "Chown", "Lchown", "Link", "Lstat", "Mkdir", "Mknod", "Open", "Rename", "Rmdir", "Stat", "Symlink", "Truncate", "Unlink"},
	"fsx":      {"LockPath", "Open", "OpenAppend", "Read", "Remove", "WriteFile"},
}

// Reasons why a path may be named.
const (
	ofRecord  = "a path of the record or the state directory, which no program can write"
	ofFinal   = "./final, or a directory of the run beside it or in it: no program can write there"
	ofCaller  = "a path that the caller names, or finds in its own directories"
	ofPorter  = "a path of the porter's own container, which no program sees"
	ofHarness = "a directory of the harness, which no program can write"
)

// pathCalls are the calls by path that there are, and why they may be. A new one is either
// replaced by a call below a root, or gets its reason here.
var pathCalls = map[string]map[string]string{
	"sandbox/tree/entry.go":                     {"os.Open": ofRecord},
	"sandbox/tree/git.go":                       {"os.Lstat": ofCaller},
	"sandbox/stage/bound.go":                    {"os.Lchown": ofRecord, "os.Mkdir": ofRecord},
	"sandbox/stage/copies.go":                   {"filepath.WalkDir": ofCaller},
	"sandbox/stage/final.go":                    {"fsx.Remove": ofFinal, "os.Mkdir": ofFinal, "os.Remove": ofFinal, "os.Stat": ofFinal},
	"sandbox/stage/lock.go":                     {"fsx.LockPath": ofFinal},
	"sandbox/stage/mounts.go":                   {"os.Chmod": ofRecord, "os.Lstat": ofCaller},
	"sandbox/stage/note.go":                     {"filepath.EvalSymlinks": ofFinal, "filepath.Glob": ofRecord, "os.Lstat": ofFinal, "os.ReadDir": ofRecord, "os.Remove": ofRecord},
	"sandbox/stage/publish.go":                  {"fsx.Remove": ofFinal, "os.Lstat": ofFinal, "os.Mkdir": ofFinal, "os.Remove": ofFinal, "os.Rename": ofFinal},
	"sandbox/stage/reclaim.go":                  {"os.Lstat": ofRecord, "os.RemoveAll": ofRecord},
	"sandbox/stage/resume.go":                   {"fsx.Remove": ofFinal, "os.Mkdir": ofFinal},
	"sandbox/stage/script.go":                   {"os.Chmod": ofRecord, "os.OpenFile": ofCaller, "os.Stat": ofCaller, "os.WriteFile": ofRecord},
	"sandbox/stage/stage.go":                    {"fsx.WriteFile": ofRecord, "os.Mkdir": ofRecord, "os.OpenFile": ofRecord, "os.Remove": ofRecord, "os.RemoveAll": ofRecord},
	"sandbox/stage/trees.go":                    {"fsx.Remove": ofRecord, "os.Mkdir": ofRecord, "os.OpenFile": ofRecord},
	"sandbox/engine/kubernetes/porter/probe.go": {"os.Open": ofPorter},
	"sandbox/engine/kubernetes/porter/serve.go": {"os.Mkdir": ofPorter, "os.Stat": "only whether a directory of a volume of the cluster exists is asked, in a container without other files"},
	"sandbox/engine/kubernetes/porter/spool.go": {"os.OpenFile": ofPorter, "os.Remove": ofPorter},
	"harness/contract/adapter/cache.go":         {"fsx.Read": ofRecord, "fsx.WriteFile": ofRecord, "os.Lstat": ofCaller, "os.MkdirAll": ofRecord, "os.RemoveAll": ofRecord},
	"harness/contract/adapter/golden.go":        {"fsx.Read": ofCaller, "fsx.WriteFile": ofCaller, "os.MkdirAll": ofCaller},
	"harness/contract/adapter/registry.go":      {"fsx.Read": ofCaller, "os.Lstat": ofCaller, "os.ReadDir": ofCaller},
	"harness/contract/adapter/web/secret.go":    {"fsx.Read": ofCaller},
	"harness/contract/approval.go":              {"fsx.Read": ofHarness, "os.Lstat": ofHarness, "os.MkdirAll": ofHarness, "os.OpenFile": ofHarness},
	"harness/contract/document.go":              {"os.Open": ofCaller},
	"harness/contract/outputs.go":               {"fsx.Open": ofCaller, "os.MkdirAll": ofRecord},
	"harness/contract/paths.go":                 {"filepath.EvalSymlinks": ofCaller, "fsx.Open": ofCaller, "os.Stat": ofCaller},
	"harness/contract/records.go":               {"fsx.Read": ofRecord, "fsx.WriteFile": ofRecord, "os.Lstat": ofRecord},
	"harness/contract/streams.go":               {"fsx.Read": ofRecord},
	"harness/contract/talk.go":                  {"os.MkdirAll": ofHarness, "os.WriteFile": ofHarness},
	"harness/evaluate/batch.go":                 {"fsx.Read": ofCaller},
	"harness/evaluate/cache.go":                 {"fsx.Read": ofHarness, "os.Stat": ofHarness},
	"harness/evaluate/files.go":                 {"fsx.LockPath": ofCaller, "fsx.Read": ofCaller, "fsx.WriteFile": ofCaller, "os.Lstat": ofCaller, "os.Mkdir": ofCaller, "os.MkdirAll": ofCaller, "os.Stat": ofCaller},
	"harness/evaluate/syntax.go":                {"os.Mkdir": ofHarness, "os.WriteFile": ofHarness},
	"harness/evaluate/grader.go":                {"filepath.EvalSymlinks": ofCaller, "filepath.WalkDir": ofHarness, "fsx.Read": ofCaller, "os.Chmod": ofHarness, "os.Mkdir": ofHarness, "os.Stat": ofCaller, "os.WriteFile": ofHarness},
	"harness/evaluate/harness.go":               {"os.Mkdir": ofHarness, "os.WriteFile": ofHarness},
	"harness/evaluate/list.go":                  {"os.Open": ofCaller},
	"harness/evaluate/results.go":               {"fsx.LockPath": ofCaller, "fsx.Open": ofCaller, "fsx.OpenAppend": ofCaller},
	"harness/evaluate/script.go":                {"fsx.WriteFile": ofCaller, "os.Lstat": ofCaller},
	"harness/evaluate/seed.go":                  {"fsx.Read": ofRecord},
	"harness/evaluate/task.go":                  {"filepath.WalkDir": ofCaller, "fsx.Read": ofCaller, "os.Stat": ofCaller},
	"harness/evaluate/submission/check.go":      {"fsx.Open": ofCaller},
	"harness/gate/directory.go":                 {"filepath.EvalSymlinks": ofCaller, "os.Lstat": ofCaller, "os.MkdirAll": ofCaller},
	"harness/gate/load.go":                      {"fsx.Read": ofCaller, "os.Lstat": ofCaller, "os.Stat": ofCaller},
	"harness/gate/replay.go":                    {"os.Stat": ofCaller},
	"harness/gate/trial.go":                     {"os.Lstat": ofHarness},
	"harness/gate/execute/outputs.go":           {"fsx.Open": ofRecord},
	"harness/gate/execute/probe.go":             {"fsx.Read": ofHarness, "fsx.WriteFile": ofHarness, "os.MkdirAll": ofHarness},
	"harness/gate/execute/workspace.go":         {"filepath.EvalSymlinks": ofCaller, "os.Mkdir": ofHarness},
	"harness/gate/git/checkout.go":              {"os.Lstat": ofCaller, "os.Mkdir": ofHarness},
	"harness/gate/git/repository.go":            {"filepath.EvalSymlinks": ofCaller, "fsx.Read": ofCaller, "os.Stat": ofCaller},
	"harness/gate/spec/spec.go":                 {"filepath.EvalSymlinks": ofCaller},
	"harness/invoke/artifact.go":                {"fsx.Open": ofCaller},
	"harness/invoke/harness.go":                 {"os.Stat": ofCaller},
	"harness/invoke/manifest.go":                {"fsx.Open": ofCaller},
	"harness/invoke/trace.go":                   {"fsx.Open": ofCaller},
	"harness/invoke/sweep/dir.go":               {"fsx.Remove": ofHarness, "os.Lstat": ofHarness, "os.Mkdir": ofHarness, "os.MkdirAll": ofHarness},
	"harness/invoke/sweep/plan.go":              {"fsx.Read": ofCaller},
	"harness/trial/expire.go":                   {"fsx.LockPath": ofHarness, "fsx.Open": ofHarness, "fsx.WriteFile": ofHarness, "os.RemoveAll": ofHarness},
	"harness/trial/index.go":                    {"fsx.Open": ofHarness, "fsx.OpenAppend": ofHarness, "os.Remove": ofHarness, "os.Stat": ofHarness},
	"harness/trial/log.go":                      {"fsx.LockPath": ofHarness, "fsx.Open": ofHarness, "fsx.OpenAppend": ofHarness, "fsx.Read": ofHarness, "fsx.WriteFile": ofHarness, "os.Mkdir": ofHarness, "os.MkdirAll": ofHarness},
}

// TestUntrustedDirectoriesAreReachedThroughRoots reads the code.
func TestUntrustedDirectoriesAreReachedThroughRoots(t *testing.T) {
	found := map[string]map[string]bool{}
	for _, dir := range untrusted {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && entry.Name() == "testdata" {
				return filepath.SkipDir // programs of tests, which run in a container
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := selector.X.(*ast.Ident)
				if ok && slices.Contains(byPath[pkg.Name], selector.Sel.Name) {
					if found[path] == nil {
						found[path] = map[string]bool{}
					}
					found[path][pkg.Name+"."+selector.Sel.Name] = true
				}
				return true
			})
			return nil
		}))
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		for _, call := range slices.Sorted(maps.Keys(found[path])) {
			assert.NotEmpty(t, pathCalls[path][call], "%s calls %s, which follows links: go through an os.Root, or say in pathCalls why no program can write there", path, call)
		}
	}
	for path, calls := range pathCalls {
		for call := range calls {
			assert.True(t, found[path][call], "%s calls %s no more: remove it from pathCalls", path, call)
		}
	}
}
