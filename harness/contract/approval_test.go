package contract

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var testHash = strings.Repeat("ab", 32)

func goodApproval() string {
	return "schema: evalbox/approval/v1\nid: a-1\ncontract_sha256: " + testHash + `
root: /project
image: debian
approved_by: Ada
reason: needed for the release
approved_at: 2026-01-31T12:00:00Z
expires_at: 2026-01-31T13:00:00+00:00
levels: [filesystem:elevated, network:open]
`
}

func TestParseApproval(t *testing.T) {
	a, err := ParseApproval([]byte(goodApproval()), "a.yaml")
	require.NoError(t, err)
	require.Equal(t, "Ada", a.ApprovedBy)
	for name, test := range map[string]struct{ old, replacement, want string }{
		"another version": {"approval/v1", "approval/v2", `a.yaml:1: CX-01: schema: want "evalbox/approval/v1"`},
		"an unknown key":  {"reason:", "raeson:", `a.yaml:7: CX-01: raeson: unknown key "raeson"`},
		"a seal":          {"reason:", "mac: ab\nreason:", `a.yaml:7: CX-01: mac: unknown key "mac"`},
		"another kind":    {"[filesystem:elevated, network:open]", "all", "a.yaml:10: CX-01: levels \"all\": must be a list"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, goodApproval(), test.old)
			_, err := ParseApproval([]byte(strings.Replace(goodApproval(), test.old, test.replacement, 1)), "a.yaml")
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestCheckApproval(t *testing.T) {
	a, err := ParseApproval([]byte(goodApproval()), "a.yaml")
	require.NoError(t, err)
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	both := []string{NeedElevated, NeedOpen}
	of := func(hash string, needs ...string) Approval {
		return Approval{ContractSHA256: hash, Levels: needs, Root: "/project", Image: "debian"}
	}
	require.Empty(t, CheckApproval(a, of(testHash, both...), noon))
	require.Empty(t, CheckApproval(a, of(testHash, NeedOpen), noon.Add(59*time.Minute)))
	elsewhere := CheckApproval(a, Approval{ContractSHA256: testHash, Levels: both, Root: "/other"}, noon)
	require.Equal(t, []string{`CK-01: approval.root "/project": the approval is for another root: this one is /other`,
		`CK-01: approval.image "debian": the approval is for another image: this one is the default`}, linesOf(elsewhere))

	change := func(do func(a *Approval)) Approval {
		changed := a
		do(&changed)
		return changed
	}
	one := a
	one.Levels = []string{NeedElevated}
	for name, test := range map[string]struct {
		a    Approval
		hash string
		at   time.Time
		want []string
	}{
		"expired":          {a, testHash, noon.Add(time.Hour), []string{`CK-01: approval.expires_at "2026-01-31T13:00:00+00:00": the approval has expired`}},
		"not yet":          {a, testHash, noon.Add(-time.Second), []string{`CK-01: approval.approved_at "2026-01-31T12:00:00Z": the approval is not valid yet`}},
		"another contract": {a, strings.Repeat("c", 64), noon, []string{`CK-01: approval.contract_sha256 "` + testHash + `": the approval is for another contract: this one is ` + strings.Repeat("c", 64)}},
		"a level":          {one, testHash, noon, []string{"CK-01: approval.levels: the approval does not name network:open"}},
		"too long":         {change(func(a *Approval) { a.ExpiresAt = "2026-02-07T12:00:01Z" }), testHash, noon, []string{"is more than 7 days after approved_at"}},
		"no time":          {change(func(a *Approval) { a.ApprovedAt = "today" }), testHash, noon, []string{`approval.approved_at "today": both times must be of RFC 3339`}},
		"no reason":        {change(func(a *Approval) { a.Reason = " " }), testHash, noon, []string{`approval.reason " ": must not be empty`}},
		"all at once":      {one, "x", noon.Add(2 * time.Hour), []string{"expires_at", "contract_sha256", "network:open"}},
		"an empty one":     {Approval{}, testHash, noon, []string{"approved_by", "reason", "approved_at", "contract_sha256", "approval.root", "approval.image", "filesystem:elevated", "network:open"}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := linesOf(CheckApproval(test.a, of(test.hash, both...), test.at))
			require.Len(t, lines, len(test.want), lines)
			for i, want := range test.want {
				require.Contains(t, lines[i], want)
			}
		})
	}
}

func TestApprovalsUse(t *testing.T) {
	approvals := Approvals{filepath.Join(t.TempDir(), "state", "approvals")}
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	a := Approval{ID: "a-1", ApprovedBy: "Ada"}

	// One of many concurrent executions uses it.
	errs := make([]error, 20)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = approvals.Use(a, "x-1", now) })
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		var used *ApprovalUsedError
		require.ErrorAs(t, err, &used)
	}
	require.Equal(t, 1, won)

	err := approvals.Use(a, "x-2", now)
	require.EqualError(t, err, `approval a-1 was used before, by execution "x-1" at "2026-01-31T12:00:00Z"`)
	info, statErr := os.Stat(filepath.Join(approvals.Dir, "a-1.used"))
	require.NoError(t, statErr)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	// A mark that was cut short is a mark.
	require.NoError(t, os.WriteFile(filepath.Join(approvals.Dir, "a-2.used"), nil, 0o600))
	require.EqualError(t, approvals.Use(Approval{ID: "a-2"}, "x", now), "approval a-2 was used before")

	require.Error(t, approvals.Use(Approval{ID: "../a"}, "x", now))
	below := Approvals{filepath.Join(approvals.Dir, "a-1.used", "x")}
	require.ErrorContains(t, below.Use(a, "x", now), `marking as used approval "a-1"`)
}

// An approval permits nothing unless it was granted in the same directory, as it is.
func TestApprovalsCheck(t *testing.T) {
	approvals := Approvals{filepath.Join(t.TempDir(), "approvals")}
	a, err := ParseApproval([]byte(goodApproval()), "a.yaml")
	require.NoError(t, err)
	changed := []string{`CK-01: approval.id "a-1": the approval was not made here, or was changed`}
	check := func(s Approvals, a Approval) []string {
		violations, err := s.Check(a)
		require.NoError(t, err)
		return linesOf(violations)
	}
	require.Equal(t, changed, check(approvals, a), "nothing was granted")
	require.NoDirExists(t, approvals.Dir)

	require.NoError(t, approvals.Grant(a))
	require.Empty(t, check(approvals, a))
	require.ErrorIs(t, approvals.Grant(a), fs.ErrExist, "an ID is granted once")
	text, err := a.YAML()
	require.NoError(t, err)
	again, err := ParseApproval(text, "a.yaml")
	require.NoError(t, err)
	require.Empty(t, check(approvals, again))

	for name, change := range map[string]func(a *Approval){
		"expires": func(a *Approval) { a.ExpiresAt = "9999-01-01T00:00:00Z" }, "root": func(a *Approval) { a.Root = "/other" },
		"image": func(a *Approval) { a.Image = "" }, "levels": func(a *Approval) { a.Levels = a.Levels[:1] },
		"contract": func(a *Approval) { a.ContractSHA256 = strings.Repeat("c", 64) },
	} {
		forged := a
		change(&forged)
		require.Equal(t, changed, check(approvals, forged), name)
	}
	forged := a
	forged.ID = "a-2"
	require.Contains(t, check(approvals, forged)[0], "was not made here")
	require.Equal(t, changed, check(Approvals{t.TempDir()}, a), "elsewhere")
	forged.ID = "../approvals/a-1"
	_, err = approvals.Check(forged)
	require.Error(t, err)

	require.NoError(t, approvals.Use(a, "x-1", time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)))
	require.Equal(t, []string{`CK-01: approval "a-1": was used before, by execution "x-1" at "2026-01-31T12:00:00Z"`}, check(approvals, a))
	require.NoError(t, os.WriteFile(filepath.Join(approvals.Dir, "a-1.json"), []byte("short"), 0o600))
	_, err = approvals.Check(a)
	require.ErrorContains(t, err, `checking approval "a-1"`)
}
