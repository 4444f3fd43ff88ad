//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// writes is a program that leaves these files in ./final, by name.
func writes(files map[string]string) func(c *fakeContainer) int {
	return func(c *fakeContainer) int {
		for name, text := range files {
			full := c.inDepot(name)
			if os.MkdirAll(filepath.Dir(full), 0o755) != nil || os.WriteFile(full, []byte(text), 0o640) != nil {
				return 1
			}
		}
		return 0
	}
}

// copied is a request whose files are copied.
func copied(t *testing.T) Request {
	t.Helper()
	dir := t.TempDir()
	input := filepath.Join(dir, "input")
	require.NoError(t, os.MkdirAll(filepath.Join(input, "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(input, "sub", "data"), []byte("D"), 0o600))
	script := filepath.Join(dir, "train.py")
	require.NoError(t, os.WriteFile(script, []byte("print(1)"), 0o600))
	return Request{ID: "r1", Image: "debian", Script: script, Input: input, Final: filepath.Join(dir, "final"), Transfer: TransferCopy}
}

func paths(res *result.Result) []string {
	var all []string
	for _, out := range res.Outputs {
		all = append(all, out.Path)
	}
	return all
}

func TestCopyMovesFilesThereAndBack(t *testing.T) {
	engine := newFakeEngine(func(c *fakeContainer) int {
		for role, name := range map[string]string{RoleProgram: "", RoleInput: "sub/data"} {
			text, err := os.ReadFile(filepath.Join(c.engine.mounts[role], name))
			if err != nil {
				return 1
			}
			c.print(string(text) + "\n")
		}
		final := c.inDepot("")
		_ = os.Symlink("/etc/passwd", filepath.Join(final, "link"))
		if fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0); err == nil {
			_ = syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(final, "sock")})
			_ = syscall.Close(fd)
		}
		return writes(map[string]string{"a": "A", "models/best": "B"})(c)
	})
	r := newFakeRunner(t, engine)
	req := copied(t)
	require.NoError(t, os.Mkdir(req.Final, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(req.Final, "thesis"), []byte("years"), 0o644))
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, 0, res.ExitCode)
	require.ElementsMatch(t, []string{"print(1)", "D", ""}, strings.Split(res.Stdout, "\n"))
	require.Equal(t, []string{"a", "models/best"}, paths(res))
	require.Equal(t, "0640", res.Outputs[0].Mode, "as the program left it")
	require.Equal(t, []result.SkippedOutput{{Path: "link", Kind: "symlink", Reason: "not a regular file"},
		{Path: "sock", Kind: "socket", Reason: "not a regular file"}}, res.OutputsSkipped)
	require.Equal(t, TransferCopy, res.Enforced.Transfer)
	text, err := os.ReadFile(filepath.Join(req.Final, "models", "best"))
	require.NoError(t, err)
	require.Equal(t, "B", string(text))
	require.FileExists(t, filepath.Join(req.Final+".before-r1", "thesis"))
	require.Empty(t, engine.left())
	require.Empty(t, engine.containers)
	require.Zero(t, engine.asked, "an engine that gets copies is not asked what it sees")
	for role, source := range engine.mounts {
		require.False(t, strings.HasPrefix(source, r.store.dir), "%s is mounted from here", role)
	}
}

func TestCopyThatFailsBeforeTheStartLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		change func(e *fakeEngine, req *Request)
		is     error
		says   string
	}{
		"no volume":          {func(e *fakeEngine, _ *Request) { e.makeErr = broken }, broken, ""},
		"name taken":         {func(e *fakeEngine, _ *Request) { e.makeErr = fmt.Errorf("x: %w", ErrNameTaken) }, ErrNameTaken, ""},
		"filling fails":      {func(e *fakeEngine, _ *Request) { e.fillErr = broken }, broken, ""},
		"no container":       {func(e *fakeEngine, _ *Request) { e.createErr = broken }, broken, ""},
		"container is taken": {func(e *fakeEngine, _ *Request) { e.createErr = ErrNameTaken }, ErrNameTaken, ""},
		"no attach":          {func(e *fakeEngine, _ *Request) { e.attachErr = broken }, broken, ""},
		"no watcher":         {func(e *fakeEngine, _ *Request) { e.watchErr = broken }, broken, ""},
		"image without du":   {func(e *fakeEngine, _ *Request) { e.deaf = 1 }, nil, "it said \"sh: du: not found"},
		"disk nearly full": {func(e *fakeEngine, _ *Request) {
			e.space = func() (int64, int64, int64) { return minFree - 1024, 1, 4096 }
		}, ErrNoSpace, "the engine's disk"},
		"input unreadable": {func(_ *fakeEngine, req *Request) {
			_ = os.Symlink("x", filepath.Join(req.Input, "x"))
			_ = os.RemoveAll(req.Script)
			_ = os.Mkdir(req.Script, 0o755)
		}, nil, "is a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			engine := newFakeEngine(func(*fakeContainer) int { return 0 })
			r := newFakeRunner(t, engine)
			req := copied(t)
			test.change(engine, &req)
			res, err := r.Run(t.Context(), req)
			require.Error(t, err)
			require.Nil(t, res)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			require.ErrorContains(t, err, test.says)
			require.Empty(t, leftBehind(t, r, engine))
			require.NoDirExists(t, req.Final)
			if errors.Is(test.is, ErrNameTaken) || strings.Contains(name, "filling") {
				require.NotContains(t, engine.removed, "evalbox-r1", "another run's container is left alone")
			}
		})
	}
}

func TestCopyCanceledWhileFilesAreSent(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	engine := newFakeEngine(func(*fakeContainer) int { return 0 })
	r := newFakeRunner(t, engine)
	gaveUp := errors.New("gave up")
	slow := &slowEngine{engine, func(archive io.Reader) error {
		_, err := io.ReadFull(archive, make([]byte, 512))
		cancel(gaveUp)
		_, readErr := io.Copy(io.Discard, archive)
		return errors.Join(err, readErr)
	}}
	r.engine = slow
	_, err := r.Run(ctx, copied(t))
	require.ErrorIs(t, err, gaveUp)
	require.Empty(t, leftBehind(t, r, engine))
}

// TestCopyStopsBeforeTheEnginesDiskIsFull: the input may be larger than the disk, and
// another run may fill it meanwhile.
func TestCopyStopsBeforeTheEnginesDiskIsFull(t *testing.T) {
	for name, test := range map[string]struct{ free, later int64 }{
		"no room for the input": {minFree + 64<<10, minFree + 64<<10},
		"others fill the disk":  {1 << 40, minFree / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				engine := newFakeEngine(func(*fakeContainer) int { return 0 })
				engine.space = func() (int64, int64, int64) {
					if time.Since(began) < 5*time.Second {
						return test.free, 1, 4096
					}
					return test.later, 1, 4096
				}
				r := newFakeRunner(t, engine)
				req := copied(t)
				require.NoError(t, os.WriteFile(filepath.Join(req.Input, "big"), make([]byte, 1<<20), 0o600))
				r.engine = &stuckEngine{engine}
				_, err := r.Run(t.Context(), req)
				require.ErrorIs(t, err, ErrNoSpace)
				require.ErrorContains(t, err, "the engine's disk")
				require.Empty(t, leftBehind(t, r, engine))
			})
		})
	}
}

// stuckEngine takes the files for ever.
type stuckEngine struct{ *fakeEngine }

func (e *stuckEngine) FillDepot(ctx context.Context, _ string, archive io.Reader) error {
	_, err := io.ReadFull(archive, make([]byte, 512))
	<-ctx.Done()
	return errors.Join(err, ctx.Err())
}

// TestCopyKeepsItsWatcherAtTheEnd: a look that is under way when the program ends is
// waited for, since who breaks it off loses the watcher.
func TestCopyKeepsItsWatcherAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, slow := time.Now(), false
		engine := newFakeEngine(func(*fakeContainer) int {
			time.Sleep(diskPeriod + time.Second)
			return 0
		})
		engine.space = func() (int64, int64, int64) {
			if !slow && time.Since(began) >= diskPeriod {
				slow = true
				time.Sleep(10 * time.Second)
			}
			return 1 << 40, 1, 4096
		}
		r := newFakeRunner(t, engine)
		res, err := r.Run(t.Context(), copied(t))
		require.NoError(t, err)
		require.True(t, slow)
		require.Equal(t, []string{"a warning of the engine"}, res.Warnings)
		require.Equal(t, 1, engine.watches)
	})
}

// slowEngine fills depots in its own way.
type slowEngine struct {
	*fakeEngine
	fill func(io.Reader) error
}

func (e *slowEngine) FillDepot(_ context.Context, _ string, archive io.Reader) error {
	return e.fill(archive)
}

func TestCopyThatBreaksOffGoesOnOrSaysSo(t *testing.T) {
	files := map[string]string{"a": strings.Repeat("a", 300), "b": strings.Repeat("b", 3000), "c/d": strings.Repeat("d", 3000)}
	lost := &connectionError{ErrEngineUnavailable, io.ErrUnexpectedEOF}
	for name, test := range map[string]struct {
		change  func(e *fakeEngine)
		outputs []string
		warns   string
	}{
		"once":                   {func(e *fakeEngine) { e.cuts, e.cutAfter = 1, 5000 }, []string{"a", "b", "c/d"}, ""},
		"at once":                {func(e *fakeEngine) { e.cuts, e.cutAfter = 2, 0 }, []string{"a", "b", "c/d"}, ""},
		"for ever":               {func(e *fakeEngine) { e.cuts, e.cutAfter = 1000, 2500 }, []string{"a"}, "outputs are incomplete: "},
		"the engine is gone":     {func(e *fakeEngine) { e.fetchErr = lost }, nil, "outputs are incomplete: "},
		"the engine refuses":     {func(e *fakeEngine) { e.fetchErr = errors.New("no such container") }, nil, "outputs are incomplete: no such container"},
		"the volume stays":       {func(e *fakeEngine) { e.fakeDepots.removeErr = errors.New("in use") }, []string{"a", "b", "c/d"}, "volume evalbox-r1 is left behind: in use"},
		"the courier is removed": {func(e *fakeEngine) { e.gone = 2 }, []string{"a", "b", "c/d"}, ""},
		"while files are fetched": {func(e *fakeEngine) {
			program := e.program
			e.program = func(c *fakeContainer) int {
				e.gone = 1
				return program(c)
			}
		}, []string{"a", "b", "c/d"}, ""},
		"it is removed for ever": {func(e *fakeEngine) {
			program := e.program
			e.program = func(c *fakeContainer) int {
				e.gone = 1000
				return program(c)
			}
		}, nil, "outputs are incomplete: "},
		"the watcher ended once": {func(e *fakeEngine) { e.deafToList = 1 }, []string{"a", "b", "c/d"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := newFakeEngine(writes(files))
				r := newFakeRunner(t, engine)
				test.change(engine)
				res, err := r.Run(t.Context(), copied(t))
				require.NoError(t, err)
				require.Equal(t, 0, res.ExitCode)
				require.Equal(t, test.outputs, paths(res))
				warnings := strings.Join(res.Warnings, "\n")
				require.Contains(t, warnings, test.warns)
				if test.warns == "" {
					require.NotContains(t, warnings, "incomplete")
				}
				if strings.Contains(test.warns, "incomplete") {
					require.NotEmpty(t, res.OutputsSkipped, "what did not come is listed")
				}
				if engine.fakeDepots.removeErr == nil {
					require.Empty(t, engine.left())
				} else {
					require.NoError(t, os.RemoveAll(engine.dir("r1")))
				}
			})
		})
	}
}

func TestCopyWatchesTheEnginesDisk(t *testing.T) {
	sleeps := func(c *fakeContainer) int { <-c.term; return 143 }
	for name, test := range map[string]struct {
		space  func() (free, entries, used int64)
		deafAt time.Duration
		fault  result.Fault
		says   string
	}{
		"disk limit":   {func() (int64, int64, int64) { return 1 << 40, 2, 4096 + 2<<20 }, 0, result.FaultProgram, "more to ./final than its disk limit"},
		"many files":   {func() (int64, int64, int64) { return 1 << 40, maxEntries + outFolders + 1, 4096 }, 0, result.FaultProgram, "disk limit"},
		"disk full":    {func() (int64, int64, int64) { return 1 << 20, 1, 4096 }, 0, result.FaultEnvironment, "nearly full"},
		"too deep":     {func() (int64, int64, int64) { return 1 << 40, 1, tooDeep }, 0, result.FaultProgram, "so deep"},
		"nobody looks": {nil, time.Second, result.FaultEnvironment, "could not be watched"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				engine := newFakeEngine(sleeps)
				if test.space != nil {
					engine.space = func() (int64, int64, int64) {
						if time.Since(began) < time.Second {
							return 1 << 40, 1, 4096
						}
						return test.space()
					}
				}
				if test.deafAt > 0 {
					engine.deafAfter = began.Add(test.deafAt)
				}
				r := newFakeRunner(t, engine)
				req := copied(t)
				req.Limits.Disk = policy.MiB
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, result.StatusDiskLimit, res.Status, res.Explanation)
				require.Equal(t, test.fault, res.Fault)
				require.Contains(t, res.Explanation, test.says)
				require.Empty(t, engine.left())
			})
		})
	}
}

func TestCopyOfALostRunIsNotCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		engine := newFakeEngine(func(*fakeContainer) int { <-end; return 137 })
		gone := fmt.Errorf("%w: gone", ErrEngineUnavailable)
		engine.waitErrs, engine.inspectErr = []error{gone}, gone
		for range 1000 {
			engine.waitErrs = append(engine.waitErrs, gone)
		}
		r := newFakeRunner(t, engine)
		res, err := r.Run(t.Context(), copied(t))
		require.ErrorIs(t, err, ErrEngineUnavailable)
		require.Equal(t, result.StatusEngineLost, res.Status)
		require.Contains(t, strings.Join(res.Warnings, "\n"), mayStillRun)
		require.Empty(t, engine.fetched)
		close(end)
	})
}

func TestCopyThatIsKept(t *testing.T) {
	engine := newFakeEngine(writes(map[string]string{"a": "A"}))
	r := newFakeRunner(t, engine)
	req := copied(t)
	req.Keep = true
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, paths(res))
	require.Contains(t, strings.Join(res.Warnings, "\n"), "volume evalbox-r1 and container evalbox_courier-r1 stay")
	require.Contains(t, engine.removed, "evalbox_watcher-r1")
	require.NotEmpty(t, engine.dir("r1"))
	require.Equal(t, "true", engine.fakeDepots.labels["r1"][LabelKeep])
	require.NoError(t, engine.RemoveDepot(t.Context(), "r1"))
}

func TestTransferIsChosen(t *testing.T) {
	for name, test := range map[string]struct {
		asked  string
		unseen bool
		want   string
		says   string
	}{
		"auto, shared":      {"", false, TransferBind, ""},
		"auto, not shared":  {TransferAuto, true, TransferCopy, ""},
		"bind, shared":      {TransferBind, false, TransferBind, ""},
		"bind, not shared":  {TransferBind, true, "", "transfer bind: the engine does not see the folders of this machine, so it cannot mount them"},
		"copy":              {TransferCopy, true, TransferCopy, ""},
		"copy, though near": {TransferCopy, false, TransferCopy, ""},
		"something else":    {"rsync", false, "", "transfer rsync: must be auto, bind or copy"},
	} {
		t.Run(name, func(t *testing.T) {
			engine := newFakeEngine(nil)
			engine.unseen = test.unseen
			r := newFakeRunner(t, engine)
			req := command("true")
			req.Transfer = test.asked
			for range 2 {
				spec, err := r.Plan(t.Context(), req)
				require.Equal(t, test.want, spec.Class.Transfer)
				if test.says == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, test.says)
				}
			}
			require.LessOrEqual(t, engine.asked, 1, "the answer is remembered")
		})
	}
}

func TestSweepTakesDepotsOfDeadOwners(t *testing.T) {
	engine := newFakeEngine(nil)
	r := newFakeRunner(t, engine)
	dead := map[string]string{LabelManaged: "true", LabelRun: "dead", LabelOwner: deadOwner().String()}
	live := map[string]string{LabelManaged: "true", LabelRun: "live", LabelOwner: owner.This().String()}
	kept := map[string]string{LabelManaged: "true", LabelRun: "kept", LabelOwner: deadOwner().String(), LabelKeep: "true"}
	for _, labels := range []map[string]string{dead, live, kept} {
		_, err := engine.MakeDepot(t.Context(), Spec{Job: Job{RunID: labels[LabelRun]}}, labels)
		require.NoError(t, err)
	}
	report, err := r.Sweep(t.Context(), SweepOptions{})
	require.NoError(t, err)
	require.Len(t, report.Removed, 1)
	require.Equal(t, "volume evalbox-dead", report.Removed[0].Container)
	require.Len(t, report.Left, 2)
	_, err = r.Sweep(t.Context(), SweepOptions{Kept: true})
	require.NoError(t, err)
	require.Equal(t, []string{"depot live"}, engine.left())
	require.NoError(t, engine.RemoveDepot(t.Context(), "live"))
}

// TestSweepLeavesTheCourierOfALiveRun: it never runs, which says nothing about its
// run, also of one whose container was told to stay.
func TestSweepLeavesTheCourierOfALiveRun(t *testing.T) {
	engine := newFakeEngine(nil)
	r := newFakeRunner(t, engine)
	addRecord(t, r.store, "runs", owner.This(), time.Now(), false)
	addRecord(t, r.store, "ended", owner.This(), time.Now(), true)
	for _, id := range []string{"runs", "ended"} {
		labels := map[string]string{LabelManaged: "true", LabelRun: id, LabelOwner: owner.This().String(), LabelKeep: "true", LabelState: r.store.dir}
		_, err := engine.MakeDepot(t.Context(), Spec{Job: Job{RunID: id}}, labels)
		require.NoError(t, err)
		engine.list = append(engine.list, Container{ID: id, Labels: labels, Ended: true},
			Container{ID: courierName(id), Labels: depotLabels(labels, PartCourier)})
	}
	_, err := r.Sweep(t.Context(), SweepOptions{Kept: true})
	require.NoError(t, err)
	require.Equal(t, []string{"ended", courierName("ended")}, engine.removed)
	require.Equal(t, []string{"depot runs"}, engine.left())
	require.NoError(t, engine.RemoveDepot(t.Context(), "runs"))
}

// TestPartsOfARunElsewhereStayAsLongAsItMay: the files may take longer to be sent than
// the program may run, and are fetched after it.
func TestPartsOfARunElsewhereStayAsLongAsItMay(t *testing.T) {
	elsewhere := owner.Owner{Boot: "another", Namespace: "1", PID: 1, Start: "1"}.String()
	engine := newFakeEngine(nil)
	r := newFakeRunner(t, engine)
	at := func(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339) }
	for id, deadline := range map[string]string{"runs": at(time.Hour), "over": at(-time.Minute)} {
		labels := map[string]string{LabelManaged: "true", LabelRun: id, LabelOwner: elsewhere, LabelDeadline: deadline}
		parts := depotLabels(labels, PartCourier)
		parts[LabelDeadline] = at(-time.Hour)
		engine.list = append(engine.list, Container{ID: id, Labels: labels, Running: true}, Container{ID: courierName(id), Labels: parts})
		_, err := engine.MakeDepot(t.Context(), Spec{Job: Job{RunID: id}}, parts)
		require.NoError(t, err)
	}
	_, err := r.Sweep(t.Context(), SweepOptions{})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"over", courierName("over")}, engine.removed)
	require.Equal(t, []string{"depot runs"}, engine.left())
	require.NoError(t, engine.RemoveDepot(t.Context(), "runs"))
}

// TestDeadlinesOfACopiedRun: the program's begins when its files are there.
func TestDeadlinesOfACopiedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(*fakeContainer) int { return 0 })
		r := newFakeRunner(t, engine)
		r.engine = &slowEngine{engine, func(archive io.Reader) error {
			time.Sleep(5 * time.Hour)
			_, err := io.Copy(io.Discard, archive)
			return err
		}}
		req := copied(t)
		req.Limits.Timeout = 2 * time.Hour
		_, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		need := time.Now().Add(req.Limits.Timeout)
		deadlineOf := func(labels map[string]string) time.Time {
			deadline, err := time.Parse(time.RFC3339, labels[LabelDeadline])
			require.NoError(t, err)
			return deadline
		}
		require.True(t, deadlineOf(engine.labels).After(need), "the container's")
		require.True(t, deadlineOf(engine.fakeDepots.labels["r1"]).After(need), "its parts'")
		note, err := r.store.journal("r1")
		require.NoError(t, err)
		require.True(t, note.Deadline.After(need), "its record's")
	})
}
