package contract

import (
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
		"no reason":       {"needed for the release", "' '", `a.yaml:7: CK-01: reason " ": must not be empty`},
		"no name":         {"approved_by: Ada\n", "", `a.yaml: CK-01: approved_by "": must not be empty`},
		"a bad ID":        {"a-1", "../a", `a.yaml:2: CK-01: id "../a": must be 1 to 64 letters`},
		"no hash":         {testHash, "abc", `a.yaml:3: CK-01: contract_sha256 "abc": must be 64 lower-case`},
		"no time":         {"2026-01-31T12:00:00Z", "today", `a.yaml:8: CK-01: approved_at "today": must be a time of RFC 3339`},
		"turned round":    {"13:00:00", "11:00:00", `a.yaml:9: CK-01: expires_at "2026-01-31T11:00:00+00:00": is not after approved_at`},
		"too long":        {"2026-01-31T13:00:00+00:00", "2026-02-07T12:00:01Z", `a.yaml:9: CK-01: expires_at "2026-02-07T12:00:01Z": is more than 7 days after approved_at`},
		"no root":         {"/project", "project", `a.yaml:4: CK-01: root "project": must be the absolute path of a folder`},
		"no levels":       {"[filesystem:elevated, network:open]", "[]", "a.yaml:10: CK-01: levels: must name what is approved"},
		"a level":         {"network:open", "network:api", `a.yaml:10: CK-01: levels[1] "network:api": must be one of filesystem:elevated, network:open`},
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
	both := []string{needElevated, needOpen}
	of := func(hash string, needs ...string) Approvable {
		return Approvable{ContractSHA256: hash, Needs: needs, Root: "/project", Image: "debian"}
	}
	require.Empty(t, CheckApproval(a, of(testHash, both...), noon))
	require.Empty(t, CheckApproval(a, of(testHash, needOpen), noon.Add(59*time.Minute)))
	elsewhere := CheckApproval(a, Approvable{ContractSHA256: testHash, Needs: both, Root: "/other"}, noon)
	require.Equal(t, []string{`CK-01: approval.root "/project": the approval is for another root: this one is /other`,
		`CK-01: approval.image "debian": the approval is for another image: this one is the default`}, told(elsewhere))

	one := a
	one.Levels = []string{needElevated}
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
		"all at once":      {one, "x", noon.Add(2 * time.Hour), []string{"expires_at", "contract_sha256", "network:open"}},
		"an empty one":     {Approval{}, testHash, noon, []string{"schema", "approval.id", "contract_sha256", "approved_by", "reason", "approval.root", "approved_at", "expires_at", "approval.levels: must", "filesystem:elevated", "network:open"}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := told(CheckApproval(test.a, of(test.hash, both...), test.at))
			require.Len(t, lines, len(test.want), lines)
			for i, want := range test.want {
				require.Contains(t, lines[i], want)
			}
		})
	}
}

func TestApprovalLedger(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "approvals")
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	a := Approval{ID: "a-1", ApprovedBy: "Ada"}

	// Of many at once one has it.
	errs := make([]error, 20)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = ApprovalLedger{dir}.Use(a, "x-1", now) })
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

	err := ApprovalLedger{dir}.Use(a, "x-2", now)
	require.EqualError(t, err, `approval a-1 was used before, by execution "x-1" at "2026-01-31T12:00:00Z"`)
	info, statErr := os.Stat(filepath.Join(dir, "a-1.json"))
	require.NoError(t, statErr)
	require.Zero(t, info.Mode().Perm()&0o077)

	// A mark that was cut short is a mark.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a-2.json"), nil, 0o600))
	require.EqualError(t, ApprovalLedger{dir}.Use(Approval{ID: "a-2"}, "x", now), "approval a-2 was used before")

	require.Error(t, ApprovalLedger{dir}.Use(Approval{ID: "../a"}, "x", now))
	require.ErrorContains(t, ApprovalLedger{filepath.Join(dir, "a-1.json", "x")}.Use(a, "x", now), "marking approval a-1 as used")
}

// An approval permits nothing that was not sealed with the key of the same folder.
func TestApprovalSeal(t *testing.T) {
	ledger := ApprovalLedger{filepath.Join(t.TempDir(), "approvals")}
	a, err := ParseApproval([]byte(goodApproval()), "a.yaml")
	require.NoError(t, err)
	changed := []string{`CK-01: approval.mac: the approval was not made here, or was changed`}
	check := func(l ApprovalLedger, a Approval) []string {
		violations, err := l.Check(a)
		require.NoError(t, err)
		return told(violations)
	}
	require.Equal(t, changed, check(ledger, a), "there is no key")
	require.NoDirExists(t, ledger.Dir)

	// All that make the key at once have the same.
	sealed := make([]Approval, 20)
	var all sync.WaitGroup
	for i := range sealed {
		all.Go(func() { sealed[i], _ = ledger.Seal(a) })
	}
	all.Wait()
	for _, s := range sealed {
		require.Empty(t, check(ledger, s))
	}
	entries, err := os.ReadDir(ledger.Dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	info, err := entries[0].Info()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	require.Equal(t, changed, check(ledger, a), "not sealed")
	for name, change := range map[string]func(a *Approval){
		"id": func(a *Approval) { a.ID = "a-2" }, "expires": func(a *Approval) { a.ExpiresAt = "9999-01-01T00:00:00Z" },
		"root": func(a *Approval) { a.Root = "/other" }, "image": func(a *Approval) { a.Image = "" },
		"levels": func(a *Approval) { a.Levels = a.Levels[:1] }, "mac": func(a *Approval) { a.MAC = "00" },
	} {
		forged := sealed[0]
		change(&forged)
		require.Equal(t, changed, check(ledger, forged), name)
	}
	other := ApprovalLedger{filepath.Join(t.TempDir(), "approvals")}
	_, err = other.Seal(a)
	require.NoError(t, err)
	require.Equal(t, changed, check(other, sealed[0]))

	require.NoError(t, ledger.Use(a, "x-1", time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)))
	require.Equal(t, []string{`CK-01: approval "a-1": was used before, by execution "x-1" at "2026-01-31T12:00:00Z"`}, check(ledger, sealed[0]))
	require.NoError(t, os.WriteFile(filepath.Join(ledger.Dir, keyFile), []byte("short"), 0o600))
	_, err = ledger.Check(sealed[0])
	require.ErrorContains(t, err, "has 5 bytes, not 32")
}
