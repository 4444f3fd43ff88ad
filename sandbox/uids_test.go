package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/uid"
)

// TestUserNamespace: files that are mounted belong to users of this machine, which are others in a
// user namespace.
func TestUserNamespace(t *testing.T) {
	dir := t.TempDir()
	me := os.Getuid()
	if me == 0 {
		me = 1234
		require.NoError(t, os.Chown(dir, me, me))
	}
	own := defaultUser(me, os.Getgid())
	for name, c := range map[string]struct {
		info         engine.Info
		caller       int
		user, asked  string
		want         string
		transfer     string
		rootIs, rule string
	}{
		"no namespace": {caller: me, want: own, transfer: spec.TransferBind},
		"rootless, the caller's": {info: engine.Info{UserNamespace: true, Rootless: true, Local: true, RootDir: dir}, caller: me,
			transfer: spec.TransferBind, rootIs: own},
		"rootless, the caller's, asked for bind": {info: engine.Info{UserNamespace: true, Rootless: true, Local: true, RootDir: dir}, caller: me,
			asked: spec.TransferBind, transfer: spec.TransferBind, rootIs: own},
		"rootless, another user": {info: engine.Info{UserNamespace: true, Rootless: true, Local: true, RootDir: dir}, caller: me,
			user: "5:5", want: "5:5", transfer: spec.TransferCopy},
		"rootless, somebody else's": {info: engine.Info{UserNamespace: true, Rootless: true, Local: true, RootDir: dir}, caller: me + 1,
			want: defaultUser(me+1, os.Getgid()), transfer: spec.TransferCopy},
		"rootless, elsewhere": {info: engine.Info{UserNamespace: true, Rootless: true, RootDir: dir}, caller: me, want: own, transfer: spec.TransferCopy},
		"rootless, of root": {info: engine.Info{UserNamespace: true, Rootless: true, Local: true, RootDir: dir},
			want: spec.LeasedUser, transfer: spec.TransferCopy},
		"remapped": {info: engine.Info{UserNamespace: true, Local: true, RootDir: dir}, caller: me, want: own, transfer: spec.TransferCopy},
		"remapped, asked for bind": {info: engine.Info{UserNamespace: true, Local: true, RootDir: dir}, caller: me, asked: spec.TransferBind,
			rule: "user namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			req := Request{User: c.user, Transfer: spec.TransferBind}
			rootIs, err := users{caller: c.caller}.choose(&req, c.asked, c.info)
			if c.rule != "" {
				require.ErrorContains(t, err, c.rule)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{c.want, c.transfer, c.rootIs}, []string{req.User, req.Transfer, rootIs})
		})
	}
}

func TestUserOfARequest(t *testing.T) {
	remapped := engine.Info{UserNamespace: true}
	few := uid.Range{First: 5000, Last: 5009}
	for name, c := range map[string]struct {
		users      users
		info       engine.Info
		asked      string
		want, rule string
	}{
		"root":                       {want: spec.LeasedUser},
		"root, user namespace":       {info: remapped, want: spec.LeasedUser},
		"root, shared":               {users: users{shared: true}, want: spec.DedicatedUser},
		"root, own choice":           {asked: "1234:5", want: "1234:5"},
		"root, before the range":     {asked: "69999", want: "69999"},
		"root, first of the range":   {asked: "70000", rule: "is in the range 70000-99999"},
		"root, last of the range":    {asked: "99999:1", rule: "is in the range 70000-99999"},
		"root, range of a namespace": {info: remapped, asked: "34000", rule: "is in the range 34000-63999"},
		"root, other range":          {info: remapped, users: users{lent: few}, asked: "5009", rule: "is in the range 5000-5009"},
		"root, outside of it":        {users: users{lent: few}, asked: "70000", want: "70000"},
		"root, shared, in the range": {users: users{shared: true}, asked: "70000", want: "70000"},
		"a name":                     {asked: "root", want: "root"}, // the plan refuses it
		"not root":                   {users: users{caller: 1000}, want: defaultUser(1000, os.Getgid())},
		"not root, own choice":       {users: users{caller: 1000}, asked: "70000", want: "70000"},
	} {
		t.Run(name, func(t *testing.T) {
			user, err := c.users.of(c.asked, c.info)
			require.Equal(t, c.want, user)
			if c.rule == "" {
				require.NoError(t, err)
				return
			}
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Contains(t, field.Rule, c.rule)
			require.NotEmpty(t, field.Hint)
		})
	}
}

func TestWithUIDs(t *testing.T) {
	for text, want := range map[string]users{"none": {shared: true}, "7-9": {lent: uid.Range{First: 7, Last: 9}}} {
		var r Runner
		require.NoError(t, WithUIDs(text)(&r))
		require.Equal(t, want, r.users)
	}
	require.EqualError(t, WithUIDs("9-7")(&Runner{}), `uid_range "9-7": must be a range of user IDs from 1, such as 70000-99999, or subuid:NAME`)
}

// heldUIDs lists the IDs that are not free, with their runs.
func heldUIDs(t *testing.T, r *Runner) (held []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.users.dir, "*"))
	require.NoError(t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		if info.Size() > 0 {
			held = append(held, filepath.Base(file))
		}
	}
	return held
}

// ownUser is the user that a run of this test gets if n IDs are lent already.
func ownUser(n int) string {
	if os.Getuid() > 0 {
		return defaultUser(os.Getuid(), os.Getgid())
	}
	return fmt.Sprintf("%d:%d", uid.Default.First+n, uid.Default.First+n)
}

// TestRunsHaveUserIDsOfTheirOwn while they run, and give them back.
func TestRunsHaveUserIDsOfTheirOwn(t *testing.T) {
	var r *Runner
	var inner error
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		if p.Job.RunID != "r1" {
			return 0
		}
		req := command("true")
		req.ID = "r2"
		_, inner = r.Run(t.Context(), req)
		return 0
	})
	r = newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	require.NoError(t, inner)
	require.Equal(t, ownUser(0), fake.Created[0].Class.User)
	require.Equal(t, ownUser(1), fake.Created[1].Class.User)
	require.Equal(t, ownUser(0), res.Enforced.User)
	require.Empty(t, heldUIDs(t, r))

	rec, err := r.Record("r2")
	require.NoError(t, err)
	require.Equal(t, ownUser(1), rec.Spec.Class.User, "its plan says which one it had")

	planned, err := r.Plan(t.Context(), command("true"))
	require.NoError(t, err)
	if os.Getuid() == 0 {
		require.Equal(t, spec.LeasedUser, planned.Class.User, "a plan leases nothing")
	}
}

// TestUserIDOfAContainerThatStays is not lent before its end is certain; adoption and a
// garbage collection can take it.
func TestUserIDOfAContainerThatStays(t *testing.T) {
	if os.Getuid() > 0 {
		require.Equal(t, uid.Range{}, newFakeRunner(t, enginetest.NewFake(nil)).users.pool(engine.Info{}))
		return // nothing is lent
	}
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		if p.Job.RunID == "r1" {
			return outlasts(p)
		}
		return 0
	})
	r := newFakeRunner(t, fake, WithUIDs("1900000000-1900000000"))
	fake.Fail.Remove, fake.WaitErrs = ErrEngineUnavailable, []error{errors.New("what it says makes no sense")}
	_, err := r.Run(t.Context(), command("train"))
	require.ErrorContains(t, err, "makes no sense")
	require.Equal(t, []string{"1900000000"}, heldUIDs(t, r))
	fake.Do(func(f *enginetest.Fake) { f.Fail.Remove = nil })

	next := command("true")
	next.ID = "r2"
	_, err = r.Run(t.Context(), next)
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "user: no user ID is free: all 1 of 1900000000-1900000000 are taken by runs that have not ended", err.Error())
	_, err = r.Record("r2")
	require.ErrorIs(t, err, record.ErrNoRecord, "nothing was created")

	lease, err := r.adoptUID("1900000000:1900000000", "r3")
	require.NoError(t, err)
	require.Nil(t, lease)
	lease, err = r.adoptUID("1900000000:1900000000", "r1")
	require.NoError(t, err)
	require.NotNil(t, lease)
	require.NoError(t, lease.Leave())

	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Len(t, heldUIDs(t, r), 1, "it still runs")
	require.NoError(t, fake.Remove(t.Context(), "evalbox-r1"))
	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Empty(t, heldUIDs(t, r))
	_, err = r.Run(t.Context(), next)
	require.NoError(t, err)
}

// TestOtherEnginesHoldersAreBelievedUntilTheirDeadline: this engine cannot be asked about them.
func TestOtherEnginesHoldersAreBelievedUntilTheirDeadline(t *testing.T) {
	fake := enginetest.NewFake(nil)
	fake.Listed = []engine.Found{
		{ID: "c1", Running: true, Labels: map[string]string{spec.LabelRun: "runs"}},
		{ID: "c2", Labels: map[string]string{spec.LabelRun: "created"}},
		{ID: "c3", Ended: true, Labels: map[string]string{spec.LabelRun: "ended"}},
		{ID: "c4", Running: true, Labels: map[string]string{spec.LabelRun: "part", spec.LabelPart: "watcher"}},
	}
	mayRun, err := newFakeRunner(t, fake).mayRun("here")(t.Context())
	require.NoError(t, err)
	for run, want := range map[string]bool{"runs": true, "created": true, "ended": false, "part": false, "unknown": false} {
		require.Equal(t, want, mayRun(uid.Holder{RunID: run, Engine: "here", Until: time.Now().Add(time.Hour)}), run)
	}
	require.True(t, mayRun(uid.Holder{RunID: "ended", Engine: "there", Until: time.Now().Add(time.Hour)}))
	require.False(t, mayRun(uid.Holder{RunID: "runs", Engine: "there", Until: time.Now().Add(-time.Hour)}))
}

func TestNamedUserIsNotLeased(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	req := command("true")
	req.User = strconv.Itoa(os.Getuid()+1) + ":1"
	if os.Getuid() > 0 {
		req.User = fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	}
	_, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, req.User, fake.Created[0].Class.User)
	require.NoFileExists(t, r.users.dir)
}
