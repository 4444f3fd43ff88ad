package rung

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidatorAccepts(t *testing.T) {
	for name, change := range map[string]map[string]string{
		"as it is":           nil,
		"other names":        {`tests.json:"pass_count": 5, "fail_count"`: `"passed": 5, "failed"`},
		"a green scan":       {"security_scan.json:PASS": "GREEN"},
		"an expected code":   {`tests.json:"exit_code": 0`: `"exit_code": 1, "expect_exit": 1`},
		"hashes in capitals": {"behavior_hash.txt": strings.ReplaceAll(bundle()["behavior_hash.txt"], "ab", "AB")},
	} {
		dir := changed(bundle(), change)
		for _, rung := range []int{Local, Stable, Promotion} {
			assert.Equal(t, Validation{Status: Valid, Errors: []string{}}, VerifyEvidence(dir, rung), name)
			assert.Equal(t, Validation{Status: Valid, Errors: []string{}}, VerifyRung(dir, rung), name)
		}
		assert.Equal(t, Valid, ValidateBundle(dir).Status, name)
	}
	// Numbers of tests are optional but for a bundle.
	dir := changed(bundle(), map[string]string{`tests.json:, "pass_count": 5, "fail_count": 0`: ""})
	assert.Equal(t, Valid, VerifyEvidence(dir, Local).Status)
	assert.Len(t, ValidateBundle(dir).Errors, 2)
	// So are files that a rung does not need.
	dir = changed(bundle(), map[string]string{"security_scan.json": "", "behavior_hash.txt": ""})
	assert.Equal(t, Valid, VerifyRung(dir, Local).Status)
	assert.Equal(t, Invalid, VerifyRung(dir, Stable).Status)
	assert.Equal(t, Valid, VerifyRung(changed(bundle(), map[string]string{"security_scan.json": ""}), Stable).Status)
}

func TestValidatorRefuses(t *testing.T) {
	const e, b, r = "VerifyEvidence", "ValidateBundle", "VerifyRung"
	for name, c := range map[string]struct {
		change map[string]string
		by     []string
		want   string
	}{
		"no plan":             {map[string]string{"plan.json": ""}, []string{e, b, r}, "plan.json"},
		"no tests":            {map[string]string{"tests.json": ""}, []string{e, b, r}, "tests.json"},
		"no hashes":           {map[string]string{"behavior_hash.txt": ""}, []string{e, b, r}, "behavior_hash.txt"},
		"no scan":             {map[string]string{"security_scan.json": ""}, []string{r}, "security_scan.json"},
		"scan in small":       {map[string]string{"security_scan.json:PASS": "pass"}, []string{r}, "must be PASS or GREEN"},
		"scan failed":         {map[string]string{"security_scan.json:PASS": "FAIL"}, []string{r}, "must be PASS or GREEN"},
		"plan is a list":      {map[string]string{"plan.json": "[]"}, []string{e, b, r}, "must be an object"},
		"plan is cut":         {map[string]string{"plan.json": "{"}, []string{e, b, r}, "not one valid JSON"},
		"tests are empty":     {map[string]string{"tests.json": " "}, []string{e, b, r}, "not one valid JSON"},
		"target unknown":      {map[string]string{`plan.json:641`: "642"}, []string{e, b}, "rung_target must be"},
		"target true":         {map[string]string{`plan.json:641`: "true"}, []string{e, b}, "rung_target must be"},
		"target 641.0":        {map[string]string{`plan.json:641`: "641.0"}, []string{e, b}, "rung_target must be"},
		"no family":           {map[string]string{`plan.json:"feature"`: `null`}, []string{e}, "task_family"},
		"no changed files":    {map[string]string{`plan.json:["a.md"]`: `"a.md"`}, []string{e}, "files_changed"},
		"no goal":             {map[string]string{`plan.json:"g"`: `""`}, []string{b}, "goal"},
		"no constraints":      {map[string]string{`plan.json:["none"]`: "null"}, []string{b}, "constraints"},
		"no command":          {map[string]string{`tests.json:"pytest"`: `""`}, []string{e, b, r}, "test_command must name"},
		"exit code 1":         {map[string]string{`tests.json:"exit_code": 0`: `"exit_code": 1`}, []string{e, b, r}, "exit_code is not 0"},
		"exit code false":     {map[string]string{`tests.json:"exit_code": 0`: `"exit_code": false`}, []string{e, b, r}, "must be an integer"},
		"exit code null":      {map[string]string{`tests.json:"exit_code": 0`: `"exit_code": null`}, []string{e, b, r}, "must be an integer"},
		"no exit code":        {map[string]string{`tests.json:"exit_code": 0, `: ""}, []string{e, b, r}, "must be an integer"},
		"none passed":         {map[string]string{`tests.json:"pass_count": 5`: `"pass_count": 0`}, []string{e, b, r}, "without a test there is no pass"},
		"a text passed":       {map[string]string{`tests.json:"pass_count": 5`: `"pass_count": "5"`}, []string{e, b, r}, "pass_count must be an integer"},
		"some failed":         {map[string]string{`tests.json:"fail_count": 0`: `"fail_count": 1`}, []string{e, b, r}, "fail_count must be 0"},
		"null hashes":         {map[string]string{"behavior_hash.txt": `{"seed_42": null, "seed_137": null, "seed_9001": null}`}, []string{e, b, r}, "seed_42 must be a SHA-256"},
		"a seed less":         {map[string]string{`behavior_hash.txt:"seed_9001"`: `"seed_1"`}, []string{e, b, r}, "seed_9001 must be"},
		"a short hash":        {map[string]string{`behavior_hash.txt:ab`: ""}, []string{e, b, r}, "64 hexadecimal digits"},
		"a signed hash":       {map[string]string{`behavior_hash.txt:ab`: "+a"}, []string{e, b, r}, "64 hexadecimal digits"},
		"seeds that disagree": {map[string]string{`behavior_hash.txt:ab`: "ba"}, []string{e, r}, "do not agree"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := changed(bundle(), c.change)
			answers := map[string]Validation{e: VerifyEvidence(dir, Promotion), b: ValidateBundle(dir), r: VerifyRung(dir, Promotion)}
			for who, v := range answers {
				if !assert.Equal(t, slices.Contains(c.by, who), v.Status == Invalid, "%s: %+v", who, v) || v.Status == Valid {
					continue
				}
				assert.Contains(t, strings.Join(v.Errors, "\n"), c.want, who)
			}
		})
	}
	for _, rung := range []int{0, -1, 642, 274178} {
		require.Equal(t, Invalid, VerifyEvidence(changed(bundle(), nil), rung).Status)
		require.Equal(t, Invalid, VerifyRung(changed(bundle(), nil), rung).Status)
	}
}
