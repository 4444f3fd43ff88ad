//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// minFree is the free space that a disk must have, maxEntries bounds the names in ./final, and
// diskPeriod is the time between two measurements; see package stage.
const (
	minFree    = 64 << 20
	maxEntries = 1_000_000
	diskPeriod = 250 * time.Millisecond
)

// writes is a program that leaves these files in ./final, by name.
func writes(files map[string]string) func(p *enginetest.Program) int {
	return func(p *enginetest.Program) int {
		for name, text := range files {
			full := p.Final(name)
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
	return Request{ID: "r1", Image: "debian", Script: script, Input: input, Final: filepath.Join(dir, "final"), Transfer: spec.TransferCopy}
}

func paths(res *result.Result) []string {
	var all []string
	for _, out := range res.Outputs {
		all = append(all, out.Path)
	}
	return all
}

func TestCopyMovesFilesThereAndBack(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		for role, name := range map[string]string{spec.RoleProgram: "", spec.RoleInput: "sub/data"} {
			text, err := os.ReadFile(filepath.Join(p.Meta.Sources[role], name))
			if err != nil {
				return 1
			}
			p.Print(string(text) + "\n")
		}
		final := p.Final("")
		_ = os.Symlink("/etc/passwd", filepath.Join(final, "link"))
		if fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0); err == nil {
			_ = syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(final, "sock")})
			_ = syscall.Close(fd)
		}
		return writes(map[string]string{"a": "A", "models/best": "B"})(p)
	})
	r := newFakeRunner(t, fake)
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
	require.Equal(t, spec.TransferCopy, res.Enforced.Transfer)
	text, err := os.ReadFile(filepath.Join(req.Final, "models", "best"))
	require.NoError(t, err)
	require.Equal(t, "B", string(text))
	require.FileExists(t, filepath.Join(req.Final+".before-r1", "thesis"))
	require.Empty(t, fake.Left())
	require.Empty(t, fake.Created[0].Meta.Stat, "what lies in a depot is nobody's to compare")
	for role, source := range fake.Sources() {
		require.False(t, strings.HasPrefix(source, r.store.Dir()), "%s is mounted from here", role)
	}
}

func TestCopyThatFailsBeforeTheStartLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		change func(f *enginetest.Fake, req *Request)
		is     error
		says   string
	}{
		"no volume":          {func(f *enginetest.Fake, _ *Request) { f.CreateErr = broken }, broken, ""},
		"name taken":         {func(f *enginetest.Fake, _ *Request) { f.CreateErr = fmt.Errorf("x: %w", ErrNameTaken) }, ErrNameTaken, ""},
		"volume not started": {func(f *enginetest.Fake, _ *Request) { f.CreateErr = engine.ErrNotStarted }, engine.ErrNotStarted, ""},
		"filling fails":      {func(f *enginetest.Fake, _ *Request) { f.FillErr = broken }, broken, ""},
		"no container":       {func(f *enginetest.Fake, _ *Request) { f.Fail.Prepare = broken }, broken, ""},
		"container is taken": {func(f *enginetest.Fake, _ *Request) { f.Fail.Prepare = ErrNameTaken }, ErrNameTaken, ""},
		"answer lost": {func(f *enginetest.Fake, _ *Request) {
			f.Fail.Prepare, f.PrepareAnyway = fmt.Errorf("%w: %w", ErrEngineUnavailable, broken), true
		}, broken, ""},
		"no watcher": {func(f *enginetest.Fake, _ *Request) { f.MonitorErr = broken }, broken, ""},
		"image without sh": {func(f *enginetest.Fake, _ *Request) {
			f.MonitorErr = fmt.Errorf("%w: no /bin/sh", engine.ErrNotStarted)
		}, engine.ErrNotStarted, "its image cannot watch the disk"},
		"neither fills nor watches": {func(f *enginetest.Fake, _ *Request) {
			f.FillErr, f.MonitorErr = broken, fmt.Errorf("%w: no /bin/sh", engine.ErrNotStarted)
		}, engine.ErrNotStarted, ""},
		"image without du": {func(f *enginetest.Fake, _ *Request) { f.Deaf = 1 }, nil, "it said \"sh: du: not found"},
		"disk nearly full": {func(f *enginetest.Fake, _ *Request) {
			f.Space = func() (int64, int64, int64) { return minFree - 1024, 1, 4096 }
		}, record.ErrNoSpace, "the engine's disk"},
		"input unreadable": {func(_ *enginetest.Fake, req *Request) {
			_ = os.Symlink("x", filepath.Join(req.Input, "x"))
			_ = os.RemoveAll(req.Script)
			_ = os.Mkdir(req.Script, 0o755)
		}, nil, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			r := newFakeRunner(t, fake)
			req := copied(t)
			test.change(fake, &req)
			res, err := r.Run(t.Context(), req)
			require.Error(t, err)
			require.Nil(t, res)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			require.ErrorContains(t, err, test.says)
			require.Empty(t, leftBehind(t, r, fake))
			require.NoDirExists(t, req.Final)
			if errors.Is(test.is, ErrNameTaken) || strings.Contains(name, "filling") {
				require.NotContains(t, fake.Removed, "evalbox-r1", "another run's container is left alone")
			}
		})
	}
}

// TestCopyToAContainerThatIsRefused: where the files go to the container of the run itself, a start that
// fails shows while they are sent. It is on record like any other.
func TestCopyToAContainerThatIsRefused(t *testing.T) {
	refused := fmt.Errorf("%w: %w: no room", engine.ErrNotStarted, engine.ErrNotPlaced)
	for name, change := range map[string]func(f *enginetest.Fake){
		"at once":                func(f *enginetest.Fake) { f.CreateErr = refused },
		"while files are sent":   func(f *enginetest.Fake) { f.FillErr, f.MonitorErr = refused, refused },
		"with its monitor alone": func(f *enginetest.Fake) { f.MonitorErr = refused },
		"when it is prepared":    func(f *enginetest.Fake) { f.Fail.Prepare = refused },
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			r := newFakeRunner(t, fake)
			change(fake)
			res, err := r.Run(t.Context(), copied(t))
			require.ErrorIs(t, err, engine.ErrNotPlaced)
			require.NotContains(t, err.Error(), "disk")
			require.Equal(t, result.StatusStartFailed, res.Status)
			require.Equal(t, result.FaultEnvironment, res.Fault)
			require.Contains(t, res.Explanation, "no room")
			require.Empty(t, fake.Left())
			record, err := r.Store().Get("r1")
			require.NoError(t, err)
			require.Equal(t, result.StatusStartFailed, record.Result.Status)
		})
	}
}

// TestCopyNamesWhatItLeavesOut: the list in the result is bounded, and says so.
func TestCopyNamesWhatItLeavesOut(t *testing.T) {
	r := newFakeRunner(t, enginetest.NewFake(nil))
	req := copied(t)
	for i := range 25 {
		require.NoError(t, os.Symlink("../../../elsewhere", filepath.Join(req.Input, fmt.Sprintf("link%02d", i))))
	}
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	var omitted []string
	for _, warning := range res.Warnings {
		if strings.HasPrefix(warning, "left out of input: ") {
			omitted = append(omitted, warning)
		}
	}
	require.Len(t, omitted, 21)
	require.Contains(t, omitted, "left out of input: 5 further entries")
}

func TestCopyCanceledWhileFilesAreSent(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	gaveUp := errors.New("gave up")
	slow := &slowEngine{fake, func(archive io.Reader) error {
		_, err := io.ReadFull(archive, make([]byte, 512))
		cancel(gaveUp)
		_, readErr := io.Copy(io.Discard, archive)
		return errors.Join(err, readErr)
	}}
	r.engine = slow
	_, err := r.Run(ctx, copied(t))
	require.ErrorIs(t, err, gaveUp)
	require.Empty(t, leftBehind(t, r, fake))
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
				fake := enginetest.NewFake(nil)
				fake.Space = func() (int64, int64, int64) {
					if time.Since(began) < 5*time.Second {
						return test.free, 1, 4096
					}
					return test.later, 1, 4096
				}
				r := newFakeRunner(t, fake)
				req := copied(t)
				require.NoError(t, os.WriteFile(filepath.Join(req.Input, "big"), make([]byte, 1<<20), 0o600))
				r.engine = &stuckEngine{fake}
				_, err := r.Run(t.Context(), req)
				require.ErrorIs(t, err, record.ErrNoSpace)
				require.ErrorContains(t, err, "the engine's disk")
				require.Empty(t, leftBehind(t, r, fake))
			})
		})
	}
}

// stuckEngine takes the files for ever.
type stuckEngine struct{ *enginetest.Fake }

func (e *stuckEngine) FillVolume(ctx context.Context, _ string, archive io.Reader) error {
	_, err := io.ReadFull(archive, make([]byte, 512))
	<-ctx.Done()
	return errors.Join(err, ctx.Err())
}

// TestCopyKeepsItsWatcherAtTheEnd: a look that is under way when the program ends is
// waited for, since who breaks it off loses the watcher.
func TestCopyKeepsItsWatcherAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, slow := time.Now(), false
		fake := enginetest.NewFake(func(*enginetest.Program) int {
			time.Sleep(diskPeriod + time.Second)
			return 0
		})
		fake.Space = func() (int64, int64, int64) {
			if !slow && time.Since(began) >= diskPeriod {
				slow = true
				time.Sleep(10 * time.Second)
			}
			return 1 << 40, 1, 4096
		}
		r := newFakeRunner(t, fake)
		res, err := r.Run(t.Context(), copied(t))
		require.NoError(t, err)
		require.True(t, slow)
		require.Equal(t, []string{"a warning of the engine"}, res.Warnings)
		require.Equal(t, 1, fake.Monitors)
	})
}

// fetchesSlowly is an engine whose archives take a while.
type fetchesSlowly struct {
	*enginetest.Fake
	takes time.Duration
}

func (e fetchesSlowly) FetchVolume(ctx context.Context, id, name string) (io.ReadCloser, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(e.takes):
		return e.Fake.FetchVolume(ctx, id, name)
	}
}

// TestKillKeepsTheOutputs: who ends a program at once does not give up its outputs, and does not wait
// for them without a bound.
func TestKillKeepsTheOutputs(t *testing.T) {
	for name, test := range map[string]struct {
		takes, lasts time.Duration
		outputs      []string
		warns        string
	}{
		"slow":    {time.Minute, time.Minute, []string{"checkpoint"}, "a warning of the engine"},
		"endless": {time.Hour, killedBudget, nil, "outputs are incomplete: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(p *enginetest.Program) int {
					writes(map[string]string{"checkpoint": "saved"})(p)
					return outlasts(p)
				})
				r := newFakeRunner(t, fake)
				r.engine = fetchesSlowly{fake, test.takes}
				ctx, cancel := context.WithCancel(t.Context())
				kill, began := make(chan struct{}), time.Now()
				time.AfterFunc(time.Second, cancel)
				time.AfterFunc(2*time.Second, func() { close(kill) })
				res, err := r.Run(ctx, copied(t), Hooks{Kill: kill})
				require.NoError(t, err)
				require.Equal(t, result.StatusCanceled, res.Status)
				require.Equal(t, test.outputs, paths(res))
				require.Contains(t, res.Warnings, test.warns)
				require.Equal(t, 2*time.Second+test.lasts, time.Since(began))
				require.Empty(t, fake.Left())
			})
		})
	}
}

// TestLeftOutFilesAreCounted: mounted or copied, one entry that stands for many files does not hide
// their number.
func TestLeftOutFilesAreCounted(t *testing.T) {
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("%03d.txt", i)] = "x"
		files[fmt.Sprintf("sub/%03d.txt", i)] = "x"
	}
	for _, transfer := range []string{spec.TransferBind, spec.TransferCopy} {
		t.Run(transfer, func(t *testing.T) {
			fake := enginetest.NewFake(writes(files))
			r := newFakeRunner(t, fake)
			req := command("write")
			req.Transfer, req.Limits.OutputFiles = transfer, 100
			res, err := r.Run(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, len(files)-len(res.Outputs), res.OutputsLeftOut)
			require.Greater(t, res.OutputsLeftOut, len(res.OutputsSkipped), "not all are named")
			require.Contains(t, res.String(), fmt.Sprintf("(%d left out)", res.OutputsLeftOut))
			require.Contains(t, strings.Join(res.Warnings, "\n"), fmt.Sprintf("the outputs lack %d files of ./final, such as ", res.OutputsLeftOut))
			require.Contains(t, strings.Join(res.Warnings, "\n"), "more than 100 entries")
		})
	}
}

// slowEngine fills depots in its own way.
type slowEngine struct {
	*enginetest.Fake
	fill func(io.Reader) error
}

func (e *slowEngine) FillVolume(_ context.Context, _ string, archive io.Reader) error {
	return e.fill(archive)
}

func TestCopyThatBreaksOffGoesOnOrSaysSo(t *testing.T) {
	files := map[string]string{"a": strings.Repeat("a", 300), "b": strings.Repeat("b", 3000), "c/d": strings.Repeat("d", 3000)}
	lost := fmt.Errorf("%w: %w", ErrEngineUnavailable, io.ErrUnexpectedEOF)
	for name, test := range map[string]struct {
		change  func(f *enginetest.Fake)
		outputs []string
		warns   string
	}{
		"once":                   {func(f *enginetest.Fake) { f.Cuts, f.CutAfter = 1, 5000 }, []string{"a", "b", "c/d"}, ""},
		"at once":                {func(f *enginetest.Fake) { f.Cuts, f.CutAfter = 2, 0 }, []string{"a", "b", "c/d"}, ""},
		"for ever":               {func(f *enginetest.Fake) { f.Cuts, f.CutAfter = 1000, 2500 }, []string{"a"}, "outputs are incomplete: "},
		"the engine is gone":     {func(f *enginetest.Fake) { f.FetchErr = lost }, nil, "outputs are incomplete: "},
		"the engine refuses":     {func(f *enginetest.Fake) { f.FetchErr = errors.New("no such container") }, nil, "outputs are incomplete: no such container"},
		"the volume stays":       {func(f *enginetest.Fake) { f.RemoveVolumeErr = errors.New("in use") }, []string{"a", "b", "c/d"}, "volume evalbox-r1 is left behind: in use"},
		"the courier is removed": {func(f *enginetest.Fake) { f.Gone = 2 }, []string{"a", "b", "c/d"}, ""},
		"while files are fetched": {func(f *enginetest.Fake) {
			program := f.Program
			f.Program = func(p *enginetest.Program) int {
				f.Gone = 1
				return program(p)
			}
		}, []string{"a", "b", "c/d"}, ""},
		"it is removed for ever": {func(f *enginetest.Fake) {
			program := f.Program
			f.Program = func(p *enginetest.Program) int {
				f.Gone = 1000
				return program(p)
			}
		}, nil, "outputs are incomplete: "},
		"the watcher ended once": {func(f *enginetest.Fake) { f.DeafToList = 1 }, []string{"a", "b", "c/d"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(writes(files))
				r := newFakeRunner(t, fake)
				test.change(fake)
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
				if fake.RemoveVolumeErr == nil {
					require.Empty(t, fake.Left())
				} else {
					require.NoError(t, os.RemoveAll(fake.VolumeDir("r1")))
				}
			})
		})
	}
}

func TestCopyWatchesTheEnginesDisk(t *testing.T) {
	for name, test := range map[string]struct {
		space  func() (free, entries, used int64)
		deafAt time.Duration
		fault  result.Fault
		says   string
	}{
		"disk limit":   {func() (int64, int64, int64) { return 1 << 40, 2, 4096 + 2<<20 }, 0, result.FaultProgram, "more to ./final than its disk limit"},
		"many files":   {func() (int64, int64, int64) { return 1 << 40, maxEntries + 3, 4096 }, 0, result.FaultProgram, "disk limit"},
		"disk full":    {func() (int64, int64, int64) { return 1 << 20, 1, 4096 }, 0, result.FaultEnvironment, "nearly full"},
		"too deep":     {func() (int64, int64, int64) { return 1 << 40, 1, enginetest.TooDeep }, 0, result.FaultProgram, "so deep"},
		"nobody looks": {nil, time.Second, result.FaultEnvironment, "could not be watched"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				fake := enginetest.NewFake(endsOnTerm)
				if test.space != nil {
					fake.Space = func() (int64, int64, int64) {
						if time.Since(began) < time.Second {
							return 1 << 40, 1, 4096
						}
						return test.space()
					}
				}
				if test.deafAt > 0 {
					fake.DeafAfter = began.Add(test.deafAt)
				}
				r := newFakeRunner(t, fake)
				req := copied(t)
				req.Limits.Disk = policy.MiB
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, result.StatusDiskLimit, res.Status, res.Explanation)
				require.Equal(t, test.fault, res.Fault)
				require.Contains(t, res.Explanation, test.says)
				require.Empty(t, fake.Left())
			})
		})
	}
}

func TestCopyOfALostRunIsNotCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		fake.Program = func(p *enginetest.Program) int { fake.Break(); return outlasts(p) }
		defer end(t, fake)
		r := newFakeRunner(t, fake)
		res, err := r.Run(t.Context(), copied(t))
		require.ErrorIs(t, err, ErrEngineUnavailable)
		require.Equal(t, result.StatusEngineLost, res.Status)
		require.Contains(t, strings.Join(res.Warnings, "\n"), "the program may still run: its outputs were not collected")
		require.Empty(t, fake.Fetched)
	})
}

func TestCopyThatIsKept(t *testing.T) {
	fake := enginetest.NewFake(writes(map[string]string{"a": "A"}))
	r := newFakeRunner(t, fake)
	req := copied(t)
	req.Keep = true
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, paths(res))
	require.Contains(t, strings.Join(res.Warnings, "\n"), "volume evalbox-r1 and container evalbox_courier-r1 stay")
	require.Contains(t, fake.Removed, "evalbox_watcher-r1")
	require.Equal(t, []string{"container evalbox-r1", "volume r1"}, fake.Left())
	require.Equal(t, "true", fake.VolumeLabels("r1")[spec.LabelKeep])
	require.NoError(t, fake.RemoveVolume(t.Context(), "r1"))
}

func TestTransferIsChosen(t *testing.T) {
	for name, test := range map[string]struct {
		asked string
		far   bool
		want  string
		says  string
	}{
		"auto, here":     {"", false, spec.TransferBind, ""},
		"auto, far away": {spec.TransferAuto, true, spec.TransferCopy, ""},
		"bind, here":     {spec.TransferBind, false, spec.TransferBind, ""},
		"bind, far away": {spec.TransferBind, true, spec.TransferBind, ""},
		"copy":           {spec.TransferCopy, true, spec.TransferCopy, ""},
		"copy, here":     {spec.TransferCopy, false, spec.TransferCopy, ""},
		"something else": {"rsync", false, "", "transfer rsync: must be auto, bind or copy"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			fake.Facts.Local = !test.far
			r := newFakeRunner(t, fake)
			req := command("true")
			req.Transfer = test.asked
			spec, err := r.Plan(t.Context(), req)
			require.Equal(t, test.want, spec.Class.Transfer)
			if test.says == "" {
				require.NoError(t, err)
			} else {
				var field *policy.FieldError
				require.EqualError(t, err, test.says)
				require.ErrorAs(t, err, &field)
				require.Contains(t, field.Hint, "auto finds out")
			}
		})
	}
}

// gVisor is a runtime whose kernel numbers devices and inodes in its own way. With age, the
// files that it shows were changed that much before those of the host.
func gVisor(age time.Duration) func(f *enginetest.Fake) {
	return func(f *enginetest.Fake) {
		f.Facts.Host.DefaultRuntime = "runsc"
		f.Ready = func(_ spec.Class, _ engine.Meta, ready *wire.Ready) {
			ready.BootID = "00000000-1111-2222-3333-444444444444"
			for target, stat := range ready.Stats {
				stat.Dev, stat.Ino, stat.Ctime = 1, 1, stat.Ctime.Add(-age)
				ready.Stats[target] = stat
			}
		}
	}
}

// elsewhere makes the container's init see other files than ours at these mounts, or
// at all of them.
func elsewhere(targets ...string) func(f *enginetest.Fake) {
	return func(f *enginetest.Fake) {
		f.Ready = func(_ spec.Class, _ engine.Meta, ready *wire.Ready) {
			for target, stat := range ready.Stats {
				if len(targets) == 0 || slices.Contains(targets, target) {
					stat.Ino++
					ready.Stats[target] = stat
				}
			}
		}
	}
}

// weakerElsewhere makes a container with mounts differ from its plan, because its engine is on another
// machine.
func weakerElsewhere(f *enginetest.Fake) {
	f.Ready = func(class spec.Class, _ engine.Meta, ready *wire.Ready) {
		if class.Transfer == spec.TransferBind {
			ready.BootID = "00000000-1111-2222-3333-444444444444"
			ready.NoNewPrivs = false
		}
	}
}

// TestEngineThatDoesNotShareOurFilesGetsCopies: whatever the engine mounts by the names of
// our files, no program gets it. What was found out is remembered, unless it is true
// of some of the files only.
func TestEngineThatDoesNotShareOurFilesGetsCopies(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *enginetest.Fake)
		// tries is how many containers two runs ask for.
		tries int
	}{
		"it has none of them":                {func(f *enginetest.Fake) { f.Unseen = true }, 3},
		"its machine is another":             {func(f *enginetest.Fake) { f.BootID = "00000000-1111-2222-3333-444444444444" }, 3},
		"it has others by all names":         {elsewhere(), 3},
		"it has another input":               {elsewhere(spec.InputDir), 4},
		"it has another directory for final": {elsewhere(spec.FinalDir), 4},
		"gVisor shows others":                {gVisor(time.Nanosecond), 3},
		"it has less than was planned":       {weakerElsewhere, 3},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			fake.Program = func(p *enginetest.Program) int {
				text, err := os.ReadFile(p.Path(spec.InputDir + "/sub/data"))
				if err != nil || string(text) != "D" || !strings.HasPrefix(p.Final(""), fake.VolumeDir(p.Job.RunID)) {
					return 1
				}
				return writes(map[string]string{"a": "A"})(p)
			}
			test.change(fake)
			r := newFakeRunner(t, fake)
			for _, id := range []string{"r1", "r2"} {
				req := copied(t)
				req.ID, req.Transfer = id, spec.TransferAuto
				require.NoError(t, os.Chmod(req.Input, 0o755))
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Zero(t, res.ExitCode)
				require.Equal(t, spec.TransferCopy, res.Enforced.Transfer)
				require.Equal(t, []string{"a"}, paths(res))
				require.FileExists(t, filepath.Join(req.Final, "a"))
				require.Empty(t, fake.Left())
			}
			require.Len(t, fake.Created, test.tries)
			require.Len(t, fake.Started, 2, "no program saw the files of somebody else")

			req := copied(t)
			req.ID, req.Transfer = "r3", spec.TransferBind
			require.NoError(t, os.Chmod(req.Input, 0o755))
			res, err := r.Run(t.Context(), req)
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, "transfer", field.Field)
			require.ErrorContains(t, err, "transfer bind: the engine does not see the directories of this machine, so it cannot mount them")
			require.Nil(t, res)
			require.NoDirExists(t, req.Final)
			require.NoDirExists(t, r.Store().RecordDir("r3"))
			require.Empty(t, fake.Left())
			require.Len(t, fake.Started, 2)
		})
	}
}

// TestGVisorMountsOurFiles: a kernel of its own shows other numbers for files of the host,
// and the run mounts them all the same.
func TestGVisorMountsOurFiles(t *testing.T) {
	fake := enginetest.NewFake(nil)
	gVisor(0)(fake)
	r := newFakeRunner(t, fake)
	req := copied(t)
	req.Transfer = spec.TransferAuto
	require.NoError(t, os.Chmod(req.Input, 0o755))
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Equal(t, "runsc", res.Enforced.Runtime)
	require.Equal(t, spec.TransferBind, res.Enforced.Transfer)
	require.EqualValues(t, 4096, res.Enforced.PIDs, "its own threads count")
}

// lazyEngine has containers that go a while after their removal is certain.
type lazyEngine struct{ *enginetest.Fake }

type lazyContainer struct{ engine.Container }

func (e lazyEngine) Prepare(ctx context.Context, class spec.Class, meta engine.Meta) (engine.Container, error) {
	c, err := e.Fake.Prepare(ctx, class, meta)
	if err != nil {
		return nil, err
	}
	return lazyContainer{c}, nil
}

func (lazyContainer) Remove(context.Context) error { return nil }

// TestSecondTryWaitsForTheRemovalOfTheFirst: both containers have the run's name.
func TestSecondTryWaitsForTheRemovalOfTheFirst(t *testing.T) {
	fake := enginetest.NewFake(nil)
	elsewhere()(fake)
	r := newFakeRunner(t, fake)
	r.engine = lazyEngine{fake}
	res, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	require.Equal(t, spec.TransferCopy, res.Enforced.Transfer)
	require.NoError(t, fake.Remove(t.Context(), "evalbox-r1"))
	require.Empty(t, fake.Left())
}

func TestSweepTakesDepotsOfDeadOwners(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	dead := map[string]string{spec.LabelManaged: "true", spec.LabelRun: "dead", spec.LabelOwner: recordtest.DeadOwner().String()}
	live := map[string]string{spec.LabelManaged: "true", spec.LabelRun: "live", spec.LabelOwner: owner.This().String()}
	kept := map[string]string{spec.LabelManaged: "true", spec.LabelRun: "kept", spec.LabelOwner: recordtest.DeadOwner().String(), spec.LabelKeep: "true"}
	for _, labels := range []map[string]string{dead, live, kept} {
		_, err := fake.CreateVolume(t.Context(), spec.Spec{Job: spec.Job{RunID: labels[spec.LabelRun]}}, labels)
		require.NoError(t, err)
	}
	report, err := r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Len(t, report.Removed, 2)
	require.Equal(t, spec.HelperName("dead"), report.Removed[0].Container)
	require.Equal(t, "volume evalbox-dead", report.Removed[1].Container)
	require.Len(t, report.Left, 4)
	_, err = r.GC(t.Context(), GCOptions{Kept: true})
	require.NoError(t, err)
	require.Equal(t, []string{"volume live"}, fake.Left())
	require.NoError(t, fake.RemoveVolume(t.Context(), "live"))
}

// TestSweepLeavesTheCourierOfALiveRun: it never runs, which says nothing about its
// run, also of one whose container is kept.
func TestSweepLeavesTheCourierOfALiveRun(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	recordtest.Add(t, r.store, "runs", owner.This(), time.Now(), false)
	recordtest.Add(t, r.store, "ended", owner.This(), time.Now(), true)
	for _, id := range []string{"runs", "ended"} {
		labels := map[string]string{spec.LabelManaged: "true", spec.LabelRun: id, spec.LabelOwner: owner.This().String(), spec.LabelKeep: "true", spec.LabelState: r.store.Dir()}
		_, err := fake.CreateVolume(t.Context(), spec.Spec{Job: spec.Job{RunID: id}}, labels)
		require.NoError(t, err)
		fake.Listed = append(fake.Listed, engine.Found{ID: id, Labels: labels, Ended: true})
	}
	_, err := r.GC(t.Context(), GCOptions{Kept: true})
	require.NoError(t, err)
	require.Equal(t, []string{"ended", spec.HelperName("ended")}, fake.Removed)
	require.Equal(t, []string{"volume runs"}, fake.Left())
	require.NoError(t, fake.RemoveVolume(t.Context(), "runs"))
}

// TestPartsOfARunElsewhereStayAsLongAsItMay: the files may take longer to be sent than
// the program may run, and are fetched after it.
func TestPartsOfARunElsewhereStayAsLongAsItMay(t *testing.T) {
	elsewhere := owner.Owner{Boot: "another", Namespace: "1", PID: 1, Start: "1"}.String()
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	at := func(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339) }
	for id, deadline := range map[string]string{"runs": at(time.Hour), "over": at(-time.Minute)} {
		labels := map[string]string{spec.LabelManaged: "true", spec.LabelRun: id, spec.LabelOwner: elsewhere, spec.LabelDeadline: deadline}
		parts := maps.Clone(labels)
		parts[spec.LabelDeadline] = at(-time.Hour)
		fake.Listed = append(fake.Listed, engine.Found{ID: id, Labels: labels, Running: true})
		_, err := fake.CreateVolume(t.Context(), spec.Spec{Job: spec.Job{RunID: id}}, parts)
		require.NoError(t, err)
	}
	_, err := r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"over", spec.HelperName("over")}, fake.Removed)
	require.Equal(t, []string{"volume runs"}, fake.Left())
	require.NoError(t, fake.RemoveVolume(t.Context(), "runs"))
}

// TestDeadlinesOfACopiedRun: the program's begins when its files are there.
func TestDeadlinesOfACopiedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		r := newFakeRunner(t, fake)
		var parts map[string]string
		r.engine = &slowEngine{fake, func(archive io.Reader) error {
			parts = fake.VolumeLabels("r1")
			time.Sleep(5 * time.Hour)
			return fake.FillVolume(context.Background(), "r1", archive)
		}}
		req := copied(t)
		req.Limits.Timeout = 2 * time.Hour
		_, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		need := time.Now().Add(req.Limits.Timeout)
		deadlineOf := func(labels map[string]string) time.Time {
			deadline, err := time.Parse(time.RFC3339, labels[spec.LabelDeadline])
			require.NoError(t, err)
			return deadline
		}
		require.True(t, deadlineOf(fake.Labels()).After(need), "the container's")
		require.True(t, deadlineOf(parts).After(need), "its parts'")
		note, err := r.store.Journal("r1")
		require.NoError(t, err)
		require.True(t, note.Deadline.After(need), "its record's")
	})
}
