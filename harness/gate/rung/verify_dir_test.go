package rung

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVerifyDirPasses(t *testing.T) {
	for _, rung := range []int{Local, Stable, Promotion} {
		assert.Equal(t, Report{Rung: rung, Verdict: Pass, StopReason: Pass, Failing: []Check{}}, VerifyDir(changed(complete(), nil), rung))
	}
	for name, change := range map[string]map[string]string{
		"another name for the command": {`tests.json:"command"`: `"test_command"`},
		"other names for the lists":    {`tests.json:"failing_tests_before"`: `"failing_before"`, `tests.json:"passing_tests_after"`: `"passing_after"`},
		"an expected failure":          {`tests.json:"exit_code": 0`: `"exit_code": 3, "expect_exit": 3`},
		"cases of null by name":        {`null_checks.json:"null_cases_handled": 2`: `"null_cases_handled": {"empty": "left out"}`},
		"a list of cases of null":      {`null_checks.json:"null_cases_handled": 2`: `"null_cases_handled": ["empty"]`},
	} {
		assert.Equal(t, Pass, VerifyDir(changed(complete(), change), Promotion).Verdict, name)
	}
	// What a higher rung asks for is no matter of the lowest.
	for name, change := range map[string]map[string]string{
		"no artifacts":     {`artifacts.json`: `{"artifacts": []}`},
		"no cases of null": {`null_checks.json:"null_cases_handled": 2`: `"null_cases_handled": 0`},
		"dirty":            {`env_snapshot.json:false`: "true"},
		"no rung":          {`plan.json:"verification_rung": 641`: `"verification_rung": 0`},
	} {
		assert.Equal(t, Pass, VerifyDir(changed(complete(), change), Local).Verdict, name)
		assert.Equal(t, Blocked, VerifyDir(changed(complete(), change), Promotion).Verdict, name)
	}
}

func TestVerifyDirFinds(t *testing.T) {
	for want, c := range map[string]struct {
		rung   int
		change map[string]string
	}{
		"plan_invalid_json":                    {Local, map[string]string{"plan.json": "[]"}},
		"plan_missing_keys":                    {Local, map[string]string{`plan.json:"profile"`: `"other"`}},
		"plan_rung_not_int":                    {Local, map[string]string{`plan.json:"verification_rung": 641`: `"verification_rung": 641.0`}},
		"plan_rung_invalid":                    {Promotion, map[string]string{`plan.json:"verification_rung": 641`: `"verification_rung": 642`}},
		"plan_flag_not_bool":                   {Local, map[string]string{`plan.json:"seed_agreement": true`: `"seed_agreement": 1`}},
		"tests_invalid_json":                   {Local, map[string]string{"tests.json": "{"}},
		"tests_missing_keys":                   {Local, map[string]string{`tests.json:"exit_code"`: `"exit"`}},
		"tests_exit_code_not_int":              {Local, map[string]string{`tests.json:"exit_code": 0`: `"exit_code": false`}},
		"tests_exit_code_nonzero":              {Local, map[string]string{`tests.json:"exit_code": 0`: `"exit_code": 1`}},
		"tests_exit_code_unexpected":           {Local, map[string]string{`tests.json:"exit_code": 0`: `"exit_code": 0, "expect_exit": 1`}},
		"tests_expect_exit_not_int":            {Local, map[string]string{`tests.json:"exit_code": 0`: `"exit_code": 0, "expect_exit": null`}},
		"tests_command_empty":                  {Local, map[string]string{`tests.json:"pytest -q"`: `" "`}},
		"tests_command_not_string":             {Local, map[string]string{`tests.json:"pytest -q"`: `null`}},
		"tests_list_invalid":                   {Local, map[string]string{`tests.json:["t::a"]`: `"t::a"`}},
		"artifacts_invalid_json":               {Local, map[string]string{"artifacts.json": "x"}},
		"artifacts_missing_keys":               {Local, map[string]string{"artifacts.json": "{}"}},
		"artifacts_not_list":                   {Local, map[string]string{"artifacts.json": `{"artifacts": {}}`}},
		"artifacts_empty":                      {Stable, map[string]string{"artifacts.json": `{"artifacts": []}`}},
		"artifacts_entry_incomplete":           {Local, map[string]string{`artifacts.json:"role"`: `"rule"`}},
		"null_checks_invalid_json":             {Local, map[string]string{"null_checks.json": "null"}},
		"null_checks_missing_keys":             {Local, map[string]string{`null_checks.json:"inputs_checked"`: `"inputs"`}},
		"null_cases_handled_zero":              {Stable, map[string]string{`null_checks.json:"null_cases_handled": 2`: `"null_cases_handled": 0`}},
		"null_cases_handled_invalid":           {Stable, map[string]string{`null_checks.json:"null_cases_handled": 2`: `"null_cases_handled": true`}},
		"behavior_hash_mismatch":               {Local, map[string]string{"behavior_hash_verify.txt": "zzzz"}},
		"behavior_hash_empty":                  {Local, map[string]string{"behavior_hash.txt": "\n", "behavior_hash_verify.txt": " "}},
		"env_snapshot_invalid_json":            {Local, map[string]string{"env_snapshot.json": `{"os": 1, "os": 2}`}},
		"env_snapshot_missing_keys":            {Local, map[string]string{`env_snapshot.json:"arch"`: `"Arch"`}},
		"git_dirty_not_bool":                   {Local, map[string]string{`env_snapshot.json:false`: "null"}},
		"git_dirty_on_promotion":               {Promotion, map[string]string{`env_snapshot.json:false`: "true"}},
		"manifest_invalid_json":                {Local, map[string]string{"evidence_manifest.json": "{}{}"}},
		"manifest_no_schema_version":           {Local, map[string]string{`evidence_manifest.json:"schema_version"`: `"version"`}},
		"manifest_schema_version_unknown":      {Local, map[string]string{`evidence_manifest.json:1.0.0`: `9`}},
		"manifest_no_files":                    {Local, map[string]string{"evidence_manifest.json": `{"schema_version": "1.0.0", "files": []}`}},
		"manifest_entry_incomplete":            {Local, map[string]string{`evidence_manifest.json:"sha256"`: `"sha"`}},
		"manifest_path_outside_root":           {Local, map[string]string{`evidence_manifest.json:"run_log.txt"`: `"../run_log.txt"`}},
		"manifest_file_missing_other.txt":      {Local, map[string]string{`evidence_manifest.json:"run_log.txt"`: `"other.txt"`}},
		"manifest_sha256_mismatch_run_log.txt": {Local, map[string]string{"run_log.txt": "changed"}},
		"manifest_role_unknown":                {Local, map[string]string{`evidence_manifest.json:"log"`: `"king"`}},
		"manifest_entry_twice_run_log.txt": {Local, map[string]string{
			`evidence_manifest.json:"files": [`: `"files": [{"file_path": "run_log.txt", "sha256": "` + sum("1 passed\n") + `", "role": "log"}, `,
		}},
		"rung_unknown": {274178, nil},
	} {
		t.Run(want, func(t *testing.T) {
			r := VerifyDir(changed(complete(), c.change), c.rung)
			assert.Equal(t, Blocked, r.Verdict)
			assert.Equal(t, Incomplete, r.StopReason)
			require.Len(t, r.Failing, 1, "%+v", r.Failing)
			assert.Equal(t, want, r.Failing[0].Name)
			assert.NotEmpty(t, r.Failing[0].Detail)
		})
	}
}

func TestVerifyDirNeedsEveryFile(t *testing.T) {
	require.Len(t, Files(), 11)
	for _, name := range Files() {
		r := VerifyDir(changed(complete(), map[string]string{name: ""}), Local)
		require.NotEmpty(t, r.Failing)
		assert.Equal(t, name+"_missing", r.Failing[0].Name)

		tree, ok := changed(complete(), nil).(fstest.MapFS)
		require.True(t, ok)
		for kind, mode := range map[string]fs.FileMode{"link": fs.ModeSymlink | 0o777, "pipe": fs.ModeNamedPipe | 0o644} {
			tree[name] = &fstest.MapFile{Data: []byte("elsewhere"), Mode: mode}
			r = VerifyDir(tree, Local)
			require.NotEmpty(t, r.Failing, kind)
			assert.Equal(t, name+"_not_regular", r.Failing[0].Name)
		}
	}
	assert.Len(t, VerifyDir(fstest.MapFS{}, Local).Failing, 11)
	// Nothing behind a link is looked at.
	tree, ok := changed(complete(), map[string]string{`evidence_manifest.json:"run_log.txt"`: `"sub/run_log.txt"`}).(fstest.MapFS)
	require.True(t, ok)
	tree["sub"] = &fstest.MapFile{Data: []byte("."), Mode: fs.ModeSymlink | 0o777}
	assert.Equal(t, "manifest_file_unreadable_sub/run_log.txt", VerifyDir(tree, Local).Failing[0].Name)
	// A document that is too large is none.
	large := changed(complete(), map[string]string{"plan.json": strings.Repeat(" ", maxDocument) + "{}"})
	assert.Equal(t, "plan_invalid_json", VerifyDir(large, Local).Failing[0].Name)
}

func FuzzVerifyDir(f *testing.F) {
	for _, name := range Files() {
		f.Add(name, complete()[name])
		f.Add(name, "{}")
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		if !fs.ValidPath(name) || name == "." || strings.Contains(name, "/") {
			return
		}
		files := complete()
		files[name] = text
		for _, rung := range []int{Local, Promotion} {
			r := VerifyDir(changed(files, nil), rung)
			require.Equal(t, len(r.Failing) == 0, r.Verdict == Pass)
		}
	})
}
