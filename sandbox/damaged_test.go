//go:build linux

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/stage"
	"github.com/evalbox/evalbox/sandbox/uid"
)

// torn is what a power cut leaves of a text.
var torn = map[string]func(text []byte) []byte{
	"empty":   func([]byte) []byte { return nil },
	"half":    func(text []byte) []byte { return text[:len(text)/2] },
	"zeros":   func(text []byte) []byte { return make([]byte, len(text)) },
	"garbage": func([]byte) []byte { return []byte("{\"schema\": \"x\"}\n") },
}

// tear damages a file.
func tear(t *testing.T, path, how string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, torn[how](text), 0o600))
}

// damagedRun is a state directory with the run r1, whose controller died and which has a container, a
// user ID, GPUs and ./final, and the run other, whose program has ended.
type damagedRun struct {
	*Runner
	fake *enginetest.Fake
	out  string
}

func newDamagedRun(t *testing.T, file, how string) damagedRun {
	t.Helper()
	standInSMI(t, twoT4)
	w := newWorker()
	fake := gpuEngine(func(p *enginetest.Program) int {
		if p.Job.RunID == "other" {
			return 0
		}
		return w.program(p)
	})
	state, step := filepath.Join(t.TempDir(), "state"), "accepted"
	if file == record.ResultFile {
		close(w.letGo)
		step = "written"
	}
	req := gpuCommand("2")
	req.Final = filepath.Join(t.TempDir(), "out")
	dieAt(t, fake, step, req, WithStateDir(state))
	other := command("true")
	other.ID, other.User = "other", "1234:1234"                 // not the user ID of r1
	r := dieAt(t, fake, "accepted", other, WithStateDir(state)) // it finishes no other behind it
	lease, err := uid.Open(r.users.dir).Lease(t.Context(), uid.Default, uid.Holder{RunID: "r1", Engine: "engine-1"}, r.mayRun("engine-1"))
	require.NoError(t, err)
	require.NoError(t, lease.Leave())
	tear(t, filepath.Join(r.store.RecordDir("r1"), file), how)
	for _, id := range []string{"r1", "other"} {
		recordtest.BegunBy(t, r.store, id, recordtest.DeadOwner())
	}
	return damagedRun{r, fake, req.Final}
}

// requireEnded: nothing is held for r1 any more, and its record says what is wrong.
func (d damagedRun) requireEnded(t *testing.T) {
	t.Helper()
	require.NotContains(t, d.fake.Containers(), "evalbox-r1")
	require.Empty(t, heldUIDs(t, d.Runner))
	require.Equal(t, []string{"free", "free"}, gpuStates(t, d.Runner))
	require.Equal(t, []uint32{uint32(os.Geteuid())}, treetest.Owners(t, d.out))
	_, next := stage.FilledLast(d.store, d.out)
	require.Empty(t, next)
	require.False(t, d.store.IsOpen("r1"))
	found, err := d.store.Get("r1")
	require.NoError(t, err)
	require.Equal(t, record.Unreadable, found.State)
	require.ErrorIs(t, found.Damage, record.ErrUnreadable)
	require.FileExists(t, found.StdoutPath(), "the logs stay")
}

func (d damagedRun) requireOtherFinished(t *testing.T) {
	t.Helper()
	found, err := d.store.Get("other")
	require.NoError(t, err)
	require.Equal(t, record.Finished, found.State)
	require.Equal(t, result.StatusExited, found.Result.Status)
}

// TestDamagedRecords: whatever a power cut leaves of the files of a record, each operation has one
// answer. The run ends with all that belongs to it, its record stays until somebody deletes it, and no
// other run is stopped.
func TestDamagedRecords(t *testing.T) {
	for operation, do := range map[string]func(t *testing.T, d damagedRun){
		"list": func(t *testing.T, d damagedRun) {
			for _, list := range []func() ([]record.Record, error){d.store.List, d.store.ListBrief} {
				records, err := list()
				require.NoError(t, err)
				require.Len(t, records, 2)
			}
			found, err := d.store.Get("r1")
			require.NoError(t, err)
			require.Equal(t, record.Unreadable, found.State)
			require.Len(t, d.fake.Containers(), 2, "who only looks ends nothing")
		},
		"gc": func(t *testing.T, d damagedRun) {
			report, err := d.GC(t.Context(), GCOptions{DryRun: true})
			require.NoError(t, err)
			require.Len(t, report.Ended, 1)
			require.Len(t, d.fake.Containers(), 2)
			report, err = d.GC(t.Context(), GCOptions{})
			require.NoError(t, err)
			require.Len(t, report.Ended, 1)
			require.Equal(t, "r1", report.Ended[0].RunID)
			require.Contains(t, report.Ended[0].Reason, "cannot be read")
			d.requireEnded(t)
			d.requireOtherFinished(t)
			report, err = d.GC(t.Context(), GCOptions{})
			require.NoError(t, err)
			require.Empty(t, report.Ended, "that was done")
			require.Empty(t, report.Left)
		},
		"adopt": func(t *testing.T, d damagedRun) {
			for range 2 {
				res, err := d.Adopt(t.Context(), "r1")
				require.Nil(t, res)
				require.ErrorIs(t, err, record.ErrUnreadable)
				require.ErrorIs(t, err, outcome.ErrOwnerDied)
				d.requireEnded(t)
			}
		},
		"adopt all": func(t *testing.T, d damagedRun) {
			settled := 0
			require.NoError(t, d.AdoptAll(t.Context(), func(a Adopted) {
				if a.Settled() {
					settled++
				}
			}))
			require.Equal(t, 1, settled)
			d.requireEnded(t)
			d.requireOtherFinished(t)
		},
		"run on its final": func(t *testing.T, d damagedRun) {
			req := command("true")
			req.ID, req.Final = "other", d.out
			_, err := d.Run(t.Context(), req)
			require.ErrorContains(t, err, "a run with this ID is recorded already")
			req.ID = "next"
			d.fake.Do(func(f *enginetest.Fake) { f.Program = nil })
			_, err = d.Run(t.Context(), req)
			require.NoError(t, err)
			d.requireEnded(t)
		},
		"run on its GPUs": func(t *testing.T, d damagedRun) {
			req := gpuCommand("2")
			req.ID = "next"
			d.fake.Do(func(f *enginetest.Fake) { f.Program = nil })
			_, err := d.Run(t.Context(), req)
			require.NoError(t, err)
		},
		"rm": func(t *testing.T, d damagedRun) { // as the command does it
			_, err := d.Adopt(t.Context(), "r1")
			require.ErrorIs(t, err, record.ErrUnreadable)
			require.NoError(t, d.store.Remove("r1"))
			_, err = d.store.Get("r1")
			require.ErrorIs(t, err, record.ErrNoRecord)
			report, err := d.GC(t.Context(), GCOptions{})
			require.NoError(t, err)
			require.Empty(t, report.Ended)
			require.Empty(t, d.fake.Left())
		},
	} {
		for _, file := range []string{record.JournalFile, record.SpecFile, record.ResultFile} {
			for how := range torn {
				t.Run(operation+", "+file+", "+how, func(t *testing.T) {
					d := newDamagedRun(t, file, how)
					do(t, d)
					d.behind.Close()
				})
			}
		}
	}
}

// TestUnreadableKeepsItsHoldUntilItsContainerIsGone: while the container cannot be removed, its program may
// run, so it keeps ./final, the GPUs and the user ID.
func TestUnreadableKeepsItsHoldUntilItsContainerIsGone(t *testing.T) {
	for _, file := range []string{record.SpecFile, record.JournalFile} {
		t.Run(file, func(t *testing.T) {
			d := newDamagedRun(t, file, "half")
			broken := errors.New("the engine does not remove it")
			d.fake.Do(func(f *enginetest.Fake) {
				f.Hook = func(call, _ string) error {
					if call == "Remove" {
						return broken
					}
					return nil
				}
			})
			users := heldUIDs(t, d.Runner)
			require.NotEmpty(t, users)
			_, err := d.Adopt(t.Context(), "r1")
			require.ErrorIs(t, err, broken)
			require.Contains(t, d.fake.Containers(), "evalbox-r1")
			_, next := stage.FilledLast(d.store, d.out)
			require.Equal(t, "r1", next, "the outputs are still those of the program")
			require.NotContains(t, gpuStates(t, d.Runner), "free")
			require.Equal(t, users, heldUIDs(t, d.Runner))
			require.True(t, d.store.IsOpen("r1"))

			d.fake.Do(func(f *enginetest.Fake) { f.Hook = nil })
			if journal := filepath.Join(d.store.RecordDir("r1"), record.JournalFile); file == record.SpecFile {
				var note record.Journal
				require.NoError(t, record.ReadJSON(journal, &note))
				require.Empty(t, note.Owner, "anybody may try again")
				note.Owner = recordtest.DeadOwner().String() // the label of the container names this process
				require.NoError(t, record.WriteJSON(journal, note))
			}
			_, err = d.Adopt(t.Context(), "r1")
			require.ErrorIs(t, err, record.ErrUnreadable)
			d.requireEnded(t)
			d.behind.Close()
		})
	}
}

// TestDamagedRecordOfALiveRun: it is running, and its result makes it whole but for the damage.
func TestDamagedRecordOfALiveRun(t *testing.T) {
	for file, refusal := range map[string]error{record.JournalFile: record.ErrUnreadable, record.SpecFile: record.ErrRunning} {
		t.Run(file, func(t *testing.T) {
			w := newWorker()
			fake := enginetest.NewFake(w.program)
			r := newFakeRunner(t, fake)
			r.at = func(step string, a *run) {
				if step != "accepted" {
					return
				}
				tear(t, filepath.Join(a.stage.Dir, file), "empty")
				state, err := r.store.State("r1")
				require.NoError(t, err)
				require.Equal(t, record.Running, state)
				_, err = r.GC(t.Context(), GCOptions{})
				require.NoError(t, err)
				_, err = r.Adopt(t.Context(), "r1")
				require.ErrorIs(t, err, refusal)
				require.ErrorIs(t, r.store.Remove("r1"), record.ErrRunning)
				close(w.letGo)
			}
			res, err := r.Run(t.Context(), command("train"))
			require.NoError(t, err)
			require.Equal(t, result.StatusExited, res.Status)
			require.Empty(t, fake.Left())
		})
	}
}

// TestDamagedRecordOfAnOwnerElsewhere: its container stays until its deadline, as any other.
func TestDamagedRecordOfAnOwnerElsewhere(t *testing.T) {
	d := newDamagedRun(t, record.JournalFile, "empty")
	elsewhere := recordtest.DeadOwner()
	elsewhere.Boot = "an earlier boot"
	recordtest.BegunBy(t, d.store, "r1", elsewhere)
	report, err := d.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Len(t, report.Left, 1)
	require.Contains(t, report.Left[0].Reason, "its owner cannot be seen from here, and its deadline is ")
	require.Contains(t, d.fake.Containers(), "evalbox-r1")
	d.requireOtherFinished(t)
	recordtest.BegunBy(t, d.store, "r1", recordtest.DeadOwner())
	_, err = d.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	d.requireEnded(t)
}

// TestDamagedNotes: of the other files of a state directory, each has one answer too. The journal says
// what a note about ./final says, a note about a job says nothing, and nobody has what nobody can read.
func TestDamagedNotes(t *testing.T) {
	for name, c := range map[string]struct {
		// file is a pattern below the state directory.
		file string
		// after is called when a garbage collection, or what stands before its name, is over.
		after func(t *testing.T, d damagedRun)
	}{
		"the note about ./final": {"locks/final-*.json", func(t *testing.T, d damagedRun) {
			t.Helper()
			require.Equal(t, []uint32{uint32(os.Geteuid())}, treetest.Owners(t, d.out), "it is handed back all the same")
			require.Equal(t, "r1", d.LeftBy(t.Context(), d.out))
		}},
		"the note about the job": {"work/*.json", func(t *testing.T, d damagedRun) {
			t.Helper()
			require.Empty(t, treetest.Everything(t, d.store.WorkDir()))
		}},
		"the beginning of the run": {"open/r1", nil},
		"the ticket of the GPUs":   {"gpus/queue/*.json", nil},
		"the requests to a proxy":  {"runs/r1/network.jsonl", nil},
		"a waiting container": {"pool/waits/owner", func(t *testing.T, d damagedRun) {
			t.Helper()
			require.Empty(t, treetest.Everything(t, d.store.PoolDir()))
		}},
	} {
		for how := range torn {
			for _, operation := range []string{"gc", "adopt", "run on its final"} {
				if operation != "gc" && c.after != nil && name != "the note about ./final" {
					continue // who finishes one run tidies nothing else
				}
				t.Run(name+", "+how+", "+operation, func(t *testing.T) {
					d := newLostRun(t, c.file, how)
					switch operation {
					case "gc":
						_, err := d.GC(t.Context(), GCOptions{})
						require.NoError(t, err)
					case "adopt":
						_, err := d.Adopt(t.Context(), "r1")
						require.NoError(t, err)
					default:
						req := finalRequest("r2", d.out)
						d.fake.Do(func(f *enginetest.Fake) { f.Program = nil })
						_, err := d.Run(t.Context(), req)
						require.NoError(t, err)
						d.behind.Close()
					}
					found, err := d.store.Get("r1")
					require.NoError(t, err)
					if operation != "run on its final" || name != "the note about ./final" {
						require.Equal(t, record.Finished, found.State)
						require.Equal(t, result.StatusExited, found.Result.Status, found.Result.Explanation)
					}
					if c.after != nil && operation != "run on its final" {
						c.after(t, d)
					}
					_, err = d.GC(t.Context(), GCOptions{})
					require.NoError(t, err)
					require.Empty(t, d.fake.Left())
					require.Equal(t, []uint32{uint32(os.Geteuid())}, treetest.Owners(t, d.out))
					require.Equal(t, []string{"free", "free"}, gpuStates(t, d.Runner))
				})
			}
		}
	}
}

// newLostRun is a state directory with the run r1, whose controller died and whose program has ended, and
// with a damaged file.
func newLostRun(t *testing.T, pattern, how string) damagedRun {
	t.Helper()
	standInSMI(t, twoT4)
	w := newWorker()
	close(w.letGo)
	fake := gpuEngine(w.program)
	req := gpuCommand("2")
	req.Final = filepath.Join(t.TempDir(), "out")
	req.Egress = &policy.Egress{Level: policy.API, Allow: []string{"example.org"}}
	r := dieAtWork(t, fake, "accepted", req, Work{Key: "job"}, WithPolicy(policy.Policy{AllowEgress: policy.API}))
	recordtest.BegunBy(t, r.store, "r1", recordtest.DeadOwner())
	dir, err := r.store.Reserve("waits")
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(r.store.Dir(), pattern))
	require.NoError(t, err)
	require.Len(t, files, 1, pattern)
	tear(t, files[0], how)
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(dir, long, long))
	return damagedRun{r, fake, req.Final}
}
