//go:build linux

package stage

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// publishing is one run whose program may run, with a ./final.
type publishing struct {
	*Stage
	final    string
	warnings []string
}

// publishingTo starts a run. Its program has begun.
func publishingTo(t *testing.T, store *record.Store, id, final string) *publishing {
	t.Helper()
	p := &publishing{final: final}
	plan := workSpec(id)
	plan.Schema, plan.Job.Final, plan.Job.DiskBytes = spec.SchemaV1, final, 1<<40
	plan.Job.OutputFiles, plan.Job.OutputDepth, plan.Job.OutputFileBytes, plan.Job.OutputTotalBytes = 100, 10, 1<<30, 1<<30
	var err error
	p.Stage, err = Open(p.options(store, plan))
	require.NoError(t, err)
	require.NoError(t, record.WriteJSON(filepath.Join(p.Dir, record.SpecFile), plan))
	require.NoError(t, p.Begin(t.Context()))
	p.journal(t)
	return p
}

func (p *publishing) options(store *record.Store, plan spec.Spec) Options {
	return Options{Store: store, Plan: plan, Log: slog.New(slog.DiscardHandler), Warn: func(format string, args ...any) {
		p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
	}}
}

func (p *publishing) journal(t *testing.T) {
	t.Helper()
	require.NoError(t, record.WriteJSON(filepath.Join(p.Dir, record.JournalFile), record.Journal{
		Schema: record.JournalSchema, ID: p.Plan.Job.RunID, Owner: owner.This().String(), Ref: record.Ref{ID: "0123456789ab"},
	}))
}

// write makes outputs, as the program's user.
func (p *publishing) write(t *testing.T, files map[string]string) {
	t.Helper()
	treetest.Write(t, p.Stage.final.out, files)
	if treetest.IsRoot() {
		require.NoError(t, filepath.WalkDir(p.Stage.final.out, func(path string, _ os.DirEntry, err error) error {
			require.NoError(t, err)
			return os.Lchown(path, 64646, 64646)
		}))
	}
}

// elsewhere moves the directory of the run to the record, from where nothing can be moved to ./final: as if
// the file system moved nothing.
func (p *publishing) elsewhere(t *testing.T) {
	t.Helper()
	from, to := p.Stage.final.out, filepath.Join(p.Dir, record.OwnFinal)
	files := contents(t, from)
	require.NoError(t, p.Stage.final.root.Close())
	require.NoError(t, os.RemoveAll(from))
	require.NoError(t, os.Mkdir(to, 0o755))
	p.Stage.final.out, p.Stage.final.root = to, treetest.Root(t, to)
	p.write(t, files)
}

// end collects the outputs, as the end of a run does, and returns their names.
func (p *publishing) end(t *testing.T) (names []string) {
	t.Helper()
	for _, out := range p.Collect(t.Context(), true, true, false).Outputs {
		names = append(names, out.Path)
	}
	require.NoError(t, p.WriteResult(&result.Result{Schema: result.SchemaV1, ID: p.Plan.Job.RunID, Status: result.StatusExited, Fault: result.FaultNone}))
	return names
}

// contents are all files below a directory, with their text.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range treetest.Everything(t, dir) {
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			all[name] = treetest.Read(t, filepath.Join(dir, name))
		}
	}
	return all
}

// finals are the kinds of ./final: each makes one with content of nobody's run, unless it is missing
// or empty.
var finals = map[string]struct {
	make func(t *testing.T, final string)
	// place is where the directory of the run is: record, beside or inside.
	place   int
	content map[string]string
	root    bool
}{
	"missing": {func(*testing.T, string) {}, 0, nil, false},
	"empty":   {func(t *testing.T, final string) { require.NoError(t, os.Mkdir(final, 0o750)) }, 0, nil, false},
	"with content": {func(t *testing.T, final string) {
		treetest.Write(t, final, map[string]string{"mine/file": "mine", "model": "mine"})
	}, 0, map[string]string{"mine/file": "mine", "model": "mine"}, false},
	"of another user, with a set-group-ID bit": {func(t *testing.T, final string) {
		treetest.Write(t, final, map[string]string{"model": "mine"})
		require.NoError(t, os.Chown(final, 1234, 5678))
		require.NoError(t, os.Chmod(final, 0o770|os.ModeSetgid|os.ModeSticky))
	}, 0, map[string]string{"model": "mine"}, true},
	"with attributes": {func(t *testing.T, final string) {
		require.NoError(t, os.Mkdir(final, 0o755))
		require.NoError(t, unix.Setxattr(final, "user.colour", []byte("blue"), 0))
	}, 0, nil, false},
	"on another file system": {func(t *testing.T, final string) {
		treetest.MountTmpfs(t, filepath.Dir(final), "size=64m")
		treetest.Write(t, final, map[string]string{"model": "mine"})
	}, 1, map[string]string{"model": "mine"}, true},
	"a file system": {func(t *testing.T, final string) {
		require.NoError(t, os.Mkdir(final, 0o755))
		treetest.MountTmpfs(t, final, "size=64m")
	}, 2, nil, true},
	"a directory mounted there": {func(t *testing.T, final string) {
		require.NoError(t, os.Mkdir(final, 0o755))
		require.NoError(t, unix.Mount(t.TempDir(), final, "", unix.MS_BIND, ""))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(final, unix.MNT_DETACH)) })
	}, 2, nil, true},
}

// TestPublish: whatever ./final is, it stays the same directory, has the outputs at the end and not
// before, and nothing of anybody is lost.
func TestPublish(t *testing.T) {
	for name, c := range finals {
		t.Run(name, func(t *testing.T) {
			if c.root && !treetest.IsRoot() {
				return
			}
			store, final := recordtest.Open(t), filepath.Join(t.TempDir(), "base", "out")
			require.NoError(t, os.Mkdir(filepath.Dir(final), 0o755))
			c.make(t, final)
			was, _ := os.Lstat(final) // missing: nil
			require.Equal(t, c.place == 0, InRecord(store, final))
			p := publishingTo(t, store, "r1", final)
			require.Equal(t, record.OutputDirs(p.Dir, final, "r1")[c.place], p.Stage.final.out)
			p.write(t, map[string]string{"model": "new", "logs/a": "new"})
			before := contents(t, final)
			delete(before, ".evalbox-partial-r1/model")
			delete(before, ".evalbox-partial-r1/logs/a")
			if len(c.content) == 0 {
				require.Empty(t, before)
			} else {
				require.Equal(t, c.content, before)
			}
			require.Equal(t, []string{"logs/a", "model"}, p.end(t))
			require.True(t, p.Published())
			require.Equal(t, map[string]string{"model": "new", "logs/a": "new"}, contents(t, final))
			require.NoDirExists(t, p.Stage.final.out)
			if c.content != nil {
				require.Equal(t, c.content, contents(t, final+".before-r1"))
				require.Equal(t, []string{"files were in final before that no run had left there: they are now in " + final + ".before-r1"}, p.warnings)
			} else {
				require.Empty(t, p.warnings)
			}
			now, err := os.Lstat(final)
			require.NoError(t, err)
			if was != nil {
				require.True(t, os.SameFile(was, now), "who looks at it goes on seeing it")
				require.Equal(t, was.Mode(), now.Mode())
				uid, gid, _ := fsx.OwnerOf(was)
				for _, path := range []string{final, final + "/model", final + "/logs/a"} {
					info, err := os.Lstat(path)
					require.NoError(t, err)
					nowUID, nowGID, _ := fsx.OwnerOf(info)
					require.Equal(t, []int{uid, gid}, []int{nowUID, nowGID}, path)
				}
			}
			require.Equal(t, "r1", LeftBy(t.Context(), store, final))

			// The next run replaces exactly this.
			p = publishingTo(t, store, "r2", final)
			p.write(t, map[string]string{"model": "newer"})
			require.Equal(t, []string{"model"}, p.end(t))
			require.Empty(t, p.warnings)
			require.Equal(t, map[string]string{"model": "newer"}, contents(t, final))
			require.NoDirExists(t, final+".before-r2")
		})
	}
}

// TestDeathWhilePublishing: the process dies behind each change on the disk, and the next one
// finishes. Nothing is lost, and nothing of an earlier run takes the place of an output.
func TestDeathWhilePublishing(t *testing.T) {
	for name, c := range finals {
		t.Run(name, func(t *testing.T) {
			if c.root && !treetest.IsRoot() {
				return
			}
			for steps := 1; ; steps++ {
				store, final := recordtest.Open(t), filepath.Join(t.TempDir(), "base", "out")
				require.NoError(t, os.Mkdir(filepath.Dir(final), 0o755))
				c.make(t, final)
				p := publishingTo(t, store, "r1", final)
				p.write(t, map[string]string{"model": "new", "logs/a": "new", "z": "new"})
				if c.place == 1 && steps%3 == 0 {
					p.elsewhere(t)
				}
				left := steps
				p.Stage.final.step = func() {
					if left--; left == 0 {
						panic("dies")
					}
				}
				died := func() (died bool) {
					defer func() { died = recover() != nil }()
					p.Collect(t.Context(), true, true, false)
					return false
				}()
				require.NoError(t, p.Close())
				if !died {
					require.Greater(t, steps, 4)
					return
				}
				if steps%2 == 0 {
					require.NoError(t, Reclaim(t.Context(), store, "r1"))
				} else {
					again := &publishing{final: final}
					var err error
					again.Stage, err = Resume(again.options(store, p.Plan), nil, true)
					require.NoError(t, err)
					require.Equal(t, []string{"logs/a", "model", "z"}, again.end(t))
				}
				require.Equal(t, map[string]string{"model": "new", "logs/a": "new", "z": "new"}, contents(t, final))
				if c.content != nil {
					require.Equal(t, c.content, contents(t, final+".before-r1"), steps)
				}
				for _, dir := range record.OutputDirs(p.Dir, final, "r1") {
					require.NoDirExists(t, dir)
				}
			}
		})
	}
}

// TestPublishWhatChanged: what somebody did to ./final during the run is seen at the end.
func TestPublishWhatChanged(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(t *testing.T, final string)
		warning string
		// stays says that the outputs cannot come there.
		stays bool
		aside map[string]string
	}{
		"removed": {func(t *testing.T, final string) { require.NoError(t, os.RemoveAll(final)) }, "was removed during the run, and is made again", false, nil},
		"moved":   {func(t *testing.T, final string) { require.NoError(t, os.Rename(final, final+".moved")) }, "was removed during the run, and is made again", false, nil},
		"replaced": {func(t *testing.T, final string) {
			require.NoError(t, os.Rename(final, final+".moved"))
			treetest.Write(t, final, map[string]string{"theirs": "x"})
		}, "was replaced by another directory: the outputs are in ", true, nil},
		"a file in its place": {func(t *testing.T, final string) {
			require.NoError(t, os.RemoveAll(final))
			require.NoError(t, os.WriteFile(final, []byte("theirs"), 0o600))
		}, "was replaced by a file: the outputs are in ", true, nil},
		"a link in its place": {func(t *testing.T, final string) {
			require.NoError(t, os.Rename(final, final+".moved"))
			require.NoError(t, os.Symlink(final+".moved", final))
		}, "was replaced by a symbolic link: the outputs are in ", true, nil},
		"a new file": {func(t *testing.T, final string) {
			treetest.Write(t, final, map[string]string{"theirs": "x", "model": "theirs"})
		}, "files were in final before that no run had left there", false, map[string]string{"theirs": "x", "model": "theirs", "old": "old"}},
		"a changed output of the run before": {func(t *testing.T, final string) {
			require.NoError(t, os.WriteFile(filepath.Join(final, "old"), []byte("edited"), 0o600))
		}, "files were in final before that no run had left there", false, map[string]string{"old": "edited"}},
		"a damaged note": {func(t *testing.T, final string) {}, "files were in final before that no run had left there", false, map[string]string{"old": "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			store, final := recordtest.Open(t), filepath.Join(t.TempDir(), "out")
			p := publishingTo(t, store, "r0", final)
			p.write(t, map[string]string{"old": "old"})
			p.end(t)
			p = publishingTo(t, store, "r1", final)
			p.write(t, map[string]string{"model": "new"})
			c.change(t, final)
			if name == "a damaged note" {
				require.NoError(t, os.WriteFile(finalFile(store, final), []byte("{"), 0o600))
			}
			require.Equal(t, []string{"model"}, p.end(t))
			require.Contains(t, strings.Join(p.warnings, "\n"), c.warning)
			require.Equal(t, !c.stays, p.Published())
			if c.stays {
				require.Equal(t, map[string]string{"model": "new"}, contents(t, p.Stage.final.out))
				require.Contains(t, strings.Join(p.warnings, "\n"), p.Stage.final.out+"; move them with: sandbox adopt r1")
				require.NoError(t, fsx.Remove(final))
				require.NoError(t, Publish(t.Context(), store, "r1"))
			}
			require.Equal(t, map[string]string{"model": "new"}, contents(t, final))
			if c.aside != nil {
				require.Equal(t, c.aside, contents(t, final+".before-r1"))
			}
		})
	}
}

// TestPublishOnAFullDisk: the file system cannot move the outputs, and has no room for a copy. They stay
// where they are, and come later.
func TestPublishOnAFullDisk(t *testing.T) {
	if !treetest.IsRoot() {
		return // needs a small file system
	}
	store, disk := recordtest.Open(t), filepath.Join(t.TempDir(), "disk")
	treetest.MountTmpfs(t, disk, "size=2m")
	final := filepath.Join(disk, "out")
	p := publishingTo(t, store, "r1", final)
	p.elsewhere(t)
	p.write(t, map[string]string{"model": strings.Repeat("x", 4<<20)})
	filler := filepath.Join(disk, "filler")
	require.NoError(t, os.WriteFile(filler, make([]byte, 1<<20), 0o600))
	require.Equal(t, []string{"model"}, p.end(t))
	require.False(t, p.Published())
	require.Contains(t, strings.Join(p.warnings, "\n"), "no space left on device: the outputs are in "+p.Stage.final.out)
	require.Empty(t, treetest.Everything(t, final))
	require.ErrorIs(t, Publish(t.Context(), store, "r1"), unix.ENOSPC)

	require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT, "size=8m"))
	require.NoError(t, Publish(t.Context(), store, "r1"))
	require.NoError(t, Publish(t.Context(), store, "r1"))
	require.Equal(t, []string{"model"}, treetest.Everything(t, final))
	require.NoDirExists(t, p.Stage.final.out)
	require.Equal(t, "r1", LeftBy(t.Context(), store, final))
}

// TestNamesOfEvalbox: a program knows the ID of its run, and may use names that evalbox gives to
// directories in ./final.
func TestNamesOfEvalbox(t *testing.T) {
	store, final := recordtest.Open(t), filepath.Join(t.TempDir(), "out")
	p := publishingTo(t, store, "r1", final)
	p.write(t, map[string]string{"model": "x", ".evalbox-partial-r1/trap": "x", ".evalbox-before-r1": "x"})
	require.Equal(t, []string{"_.evalbox-before-r1", "_.evalbox-partial-r1/trap", "model"}, p.end(t))
	require.Len(t, p.warnings, 2)
	require.Equal(t, map[string]string{"_.evalbox-before-r1": "x", "_.evalbox-partial-r1/trap": "x", "model": "x"}, contents(t, final))
	found, err := store.Load("r1")
	require.NoError(t, err)
	require.Equal(t, final, found.OutputDir())
	require.Equal(t, "r1", LeftBy(t.Context(), store, final))
}

// TestLinksBesideFinal: who may write beside ./final cannot lead files elsewhere.
func TestLinksBesideFinal(t *testing.T) {
	store, base := recordtest.Open(t), t.TempDir()
	final, elsewhere := filepath.Join(base, "out"), t.TempDir()
	treetest.Write(t, final, map[string]string{"mine": "x"})
	p := publishingTo(t, store, "r1", final)
	p.write(t, map[string]string{"model": "x"})
	require.NoError(t, os.Symlink(elsewhere, final+".before-r1"))
	require.Equal(t, []string{"model"}, p.end(t))
	require.False(t, p.Published())
	require.Empty(t, treetest.Everything(t, elsewhere))
	require.Equal(t, map[string]string{"mine": "x"}, contents(t, final))
	require.NoError(t, os.Remove(final+".before-r1"))
	require.NoError(t, Publish(t.Context(), store, "r1"))
	require.Equal(t, map[string]string{"model": "x"}, contents(t, final))

	// A directory above it that is a link now.
	above := filepath.Join(base, "above")
	require.NoError(t, os.Mkdir(above, 0o755))
	final = filepath.Join(above, "out")
	p = publishingTo(t, store, "r2", final)
	p.write(t, map[string]string{"model": "x"})
	require.NoError(t, os.Rename(above, above+".moved"))
	require.NoError(t, os.Symlink(elsewhere, above))
	require.Equal(t, []string{"model"}, p.end(t))
	require.False(t, p.Published())
	require.NotContains(t, treetest.Everything(t, elsewhere), "out/model")
}

// TestARunThatNeverStarts leaves the note as it was: the outputs of the run before may have still to come.
func TestARunThatNeverStarts(t *testing.T) {
	store, final := recordtest.Open(t), filepath.Join(t.TempDir(), "out")
	waits := publishingTo(t, store, "r1", final)
	waits.write(t, map[string]string{"model": "x"})
	require.NoError(t, waits.Close())
	p := publishingTo(t, store, "r2", final)
	require.NoError(t, p.Rollback())
	require.NoError(t, p.Close())
	_, next := FilledLast(store, final)
	require.Equal(t, "r1", next)
	require.NoError(t, Publish(t.Context(), store, "r1"))
	require.Equal(t, map[string]string{"model": "x"}, contents(t, final))
}

// TestSuperseded: the outputs of a run that is finished late do not replace those of a later run.
func TestSuperseded(t *testing.T) {
	store, final := recordtest.Open(t), filepath.Join(t.TempDir(), "out")
	dead := publishingTo(t, store, "r1", final)
	dead.write(t, map[string]string{"model": "dead"})
	require.NoError(t, dead.Close())
	p := publishingTo(t, store, "r2", final)
	p.write(t, map[string]string{"model": "new"})
	p.end(t)
	require.NoError(t, Publish(t.Context(), store, "r1"))
	require.Equal(t, map[string]string{"model": "new"}, contents(t, final))
	require.Equal(t, map[string]string{"model": "dead"}, contents(t, dead.Stage.final.out))
	again := &publishing{}
	var err error
	again.Stage, err = Resume(again.options(store, dead.Plan), nil, true)
	require.NoError(t, err)
	require.Equal(t, []string{"model"}, again.end(t))
	require.Equal(t, []string{fmt.Sprintf("run r2 has used final %q since: the outputs are in %s", final, dead.Stage.final.out)}, again.warnings)
}

// TestEmptyBeforeTheStart is what the harness for scripts asks for (EX-002).
func TestEmptyBeforeTheStart(t *testing.T) {
	store, final := recordtest.Open(t), filepath.Join(t.TempDir(), "out")
	p := publishingTo(t, store, "r1", final)
	p.write(t, map[string]string{"model": "old"})
	p.end(t)
	plan := p.Plan
	plan.Job.RunID = "r2"
	o := p.options(store, plan)
	o.Empty = true
	s, err := Open(o)
	require.NoError(t, err)
	require.Equal(t, []string{"model"}, treetest.Everything(t, final))
	require.NoError(t, s.Begin(t.Context()))
	require.Empty(t, treetest.Everything(t, final))
	require.NoError(t, s.Rollback())
	require.NoError(t, s.Close())
	require.Empty(t, treetest.Everything(t, final))
	require.Empty(t, p.warnings)
	last, next := FilledLast(store, final)
	require.Empty(t, last+next)
}

// TestFinalThatCannotBeFilled is refused before anything runs.
func TestFinalThatCannotBeFilled(t *testing.T) {
	if !treetest.IsRoot() {
		return // needs a mount
	}
	store, final := recordtest.Open(t), filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.Mkdir(final, 0o755))
	treetest.MountTmpfs(t, final, "size=1m")
	treetest.Write(t, final, map[string]string{"mine": "x"})
	plan := workSpec("r1")
	plan.Job.Final = final
	_, err := open(store, plan)
	require.ErrorContains(t, err, "holds what no run left there, and it cannot be moved aside")
	require.Equal(t, []string{"mine"}, treetest.Everything(t, final))
	require.Empty(t, treetest.Everything(t, store.RunsDir()))
}

// TestUserThatCannotBeGivenFinal: only root can give files to another user.
func TestUserThatCannotBeGivenFinal(t *testing.T) {
	if treetest.IsRoot() {
		return
	}
	store := recordtest.Open(t)
	plan := workSpec("r1")
	plan.Class.User = "64646:64646"
	_, err := open(store, plan)
	require.ErrorContains(t, err, "cannot be given to user 64646:64646")
	require.Empty(t, treetest.Everything(t, store.RunsDir()))
}
