package rung

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Files of an evidence directory (RO-06).
const (
	planFile       = "plan.json"
	testsFile      = "tests.json"
	artifactsFile  = "artifacts.json"
	nullChecksFile = "null_checks.json"
	hashFileName   = "behavior_hash.txt"
	hashVerifyName = "behavior_hash_verify.txt"
	snapshotFile   = "env_snapshot.json"
	manifestFile   = "evidence_manifest.json"
)

// Files are the eleven files of an evidence directory (RO-06).
func Files() []string {
	return []string{
		planFile, "run_log.txt", testsFile, artifactsFile, "repro_red.log", "repro_green.log", nullChecksFile,
		hashFileName, hashVerifyName, snapshotFile, manifestFile,
	}
}

// Keys that documents must have (RO-07).
var (
	planKeys = []string{
		"skill_version", "profile", "stop_reason", "last_known_state", "loop_budgets", "localization_summary",
		"verification_rung_target", "verification_rung", "seed_agreement", "null_checks_performed", "forecast_summary",
		"env_snapshot_pointer", "evidence_manifest_pointer",
	}
	nullCheckKeys = []string{"inputs_checked", "null_cases_handled", "zero_cases_distinguished", "coercion_violations_detected"}
	snapshotKeys  = []string{
		"git_commit", "git_dirty", "repo_root", "os", "arch", "language_runtimes", "tool_versions", "timezone", "locale",
	}
)

// VerifyDir checks an evidence directory of eleven files against a rung (RO-11): that the
// files are there with their keys, that the two behaviour hashes are equal, that the
// manifest's hashes are those of the files, and, other than the tool whose layout it is,
// that the tests' exit code is the expected one, 0 if none is told (resolution 48). From
// [Stable] on there must be artifacts and cases of null that were handled; for
// [Promotion] the plan names a rung and nothing is uncommitted.
func VerifyDir(dir fs.FS, rung int) Report {
	r := &verification{Report: Report{Rung: rung, Verdict: Pass, StopReason: Pass, Failing: []Check{}}, dir: dir}
	if !Known(rung) {
		r.fail("rung_unknown", "%d is no rung; there are %d, %d and %d", rung, Local, Stable, Promotion)
		return r.Report
	}
	for _, name := range Files() {
		file, err := openFile(dir, name)
		var odd *fsx.NotRegularError
		switch {
		case err == nil:
			file.Close()
		case errors.Is(err, fs.ErrNotExist):
			r.fail(name+"_missing", "%s is missing", name)
		case errors.As(err, &odd):
			r.fail(name+"_not_regular", "%s %s", name, odd)
		default:
			r.fail(name+"_unreadable", "%s: %s", name, err)
		}
	}
	r.plan()
	r.tests()
	r.artifacts()
	r.nullChecks()
	r.hashes()
	r.snapshot()
	r.manifest()
	return r.Report
}

type verification struct {
	Report
	dir fs.FS
}

// object reads a document, and tells what is wrong with it under a name of its own. What
// is not there was told.
func (r *verification) object(file, name string) object {
	if _, err := fs.Lstat(r.dir, file); err != nil {
		return nil
	}
	o, err := readObject(r.dir, file)
	if err != nil {
		r.fail(name+"_invalid_json", "%s %s", file, err)
		return nil
	}
	return o
}

// keys says whether all keys are there.
func (r *verification) keys(o object, file, name string, keys []string) bool {
	missing, ok := o.has(keys...)
	if !ok {
		r.fail(name+"_missing_keys", "%s has no key %q", file, missing)
	}
	return ok
}

func (r *verification) plan() {
	o := r.object(planFile, "plan")
	if o == nil || !r.keys(o, planFile, "plan", planKeys) {
		return
	}
	for _, key := range []string{"verification_rung_target", "verification_rung"} {
		value, ok := as[int](o, key)
		switch {
		case !ok:
			r.fail("plan_rung_not_int", "%s: %s must be an integer", planFile, key)
		case r.Rung == Promotion && !Known(value):
			r.fail("plan_rung_invalid", "%s: %s is %d, which is no rung", planFile, key, value)
		}
	}
	for _, key := range []string{"seed_agreement", "null_checks_performed"} {
		if _, ok := as[bool](o, key); !ok {
			r.fail("plan_flag_not_bool", "%s: %s must be true or false", planFile, key)
		}
	}
}

func (r *verification) tests() {
	o := r.object(testsFile, "tests")
	if o == nil {
		return
	}
	// Some tools write other names for the same (resolution 44).
	command := o.either("command", "test_command")
	before, after := o.either("failing_tests_before", "failing_before"), o.either("passing_tests_after", "passing_after")
	if !r.keys(o, testsFile, "tests", []string{command, "exit_code", before, after}) {
		return
	}
	switch text, ok := as[string](o, command); {
	case !ok:
		r.fail("tests_command_not_string", "%s: %s must be a string", testsFile, command)
	case strings.TrimSpace(text) == "":
		r.fail("tests_command_empty", "%s names no command that was run", testsFile)
	}
	for _, key := range []string{before, after} {
		if _, ok := as[[]string](o, key); !ok {
			r.fail("tests_list_invalid", "%s: %s must be a list of names", testsFile, key)
		}
	}
	if name, detail := exitProblem(o); name != "" {
		r.fail("tests_"+name, "%s: %s", testsFile, detail)
	}
}

// exitProblem says what is wrong with the exit code of tests; empty for nothing.
func exitProblem(o object) (name, detail string) {
	code, ok := as[int](o, "exit_code")
	if !ok {
		return "exit_code_not_int", "exit_code must be an integer"
	}
	expected := 0
	if _, told := o["expect_exit"]; told {
		if expected, ok = as[int](o, "expect_exit"); !ok {
			return "expect_exit_not_int", "expect_exit must be an integer"
		}
	}
	switch {
	case code == expected:
		return "", ""
	case expected == 0:
		return "exit_code_nonzero", "the command failed: exit_code is not 0"
	}
	return "exit_code_unexpected", "exit_code is not expect_exit"
}

func (r *verification) artifacts() {
	o := r.object(artifactsFile, "artifacts")
	if o == nil || !r.keys(o, artifactsFile, "artifacts", []string{"artifacts"}) {
		return
	}
	entries, ok := as[[]json.RawMessage](o, "artifacts")
	switch {
	case !ok:
		r.fail("artifacts_not_list", "%s: artifacts must be a list", artifactsFile)
	case len(entries) == 0 && r.Rung != Local:
		r.fail("artifacts_empty", "%s lists nothing, and rung %d needs something to show", artifactsFile, r.Rung)
	}
	for i, raw := range entries {
		var f evidence.HashedFile
		if evidence.Decode(raw, &f) != nil || f.FilePath == "" || f.SHA256 == "" || f.Role == "" {
			r.fail("artifacts_entry_incomplete", "%s: artifacts[%d] must have file_path, sha256 and role", artifactsFile, i)
			return
		}
	}
}

func (r *verification) nullChecks() {
	o := r.object(nullChecksFile, "null_checks")
	if o == nil || !r.keys(o, nullChecksFile, "null_checks", nullCheckKeys) || r.Rung == Local {
		return
	}
	number, isNumber := as[int](o, "null_cases_handled")
	list, isList := as[[]json.RawMessage](o, "null_cases_handled")
	named, isNamed := as[map[string]json.RawMessage](o, "null_cases_handled")
	switch {
	case !isNumber && !isList && !isNamed:
		r.fail("null_cases_handled_invalid", "%s: null_cases_handled must be an integer or list the cases", nullChecksFile)
	case number <= 0 && len(list) == 0 && len(named) == 0:
		r.fail("null_cases_handled_zero", "%s: no case of null was handled, and rung %d needs one", nullChecksFile, r.Rung)
	}
}

func (r *verification) hashes() {
	var texts []string
	for _, name := range []string{hashFileName, hashVerifyName} {
		if _, err := fs.Lstat(r.dir, name); err != nil {
			return // told
		}
		text, err := readFile(r.dir, name)
		if err != nil {
			r.fail("behavior_hash_unreadable", "%s: %s", name, err)
			return
		}
		texts = append(texts, strings.TrimSpace(string(text)))
	}
	switch {
	case slices.Contains(texts, ""):
		r.fail("behavior_hash_empty", "a behaviour hash is empty")
	case texts[0] != texts[1]:
		r.fail("behavior_hash_mismatch", "%s and %s differ", hashFileName, hashVerifyName)
	}
}

func (r *verification) snapshot() {
	o := r.object(snapshotFile, "env_snapshot")
	if o == nil || !r.keys(o, snapshotFile, "env_snapshot", snapshotKeys) {
		return
	}
	dirty, ok := as[bool](o, "git_dirty")
	switch {
	case !ok:
		r.fail("git_dirty_not_bool", "%s: git_dirty must be true or false", snapshotFile)
	case dirty && r.Rung == Promotion:
		r.fail("git_dirty_on_promotion", "%s: there are changes that are in no commit", snapshotFile)
	}
}
