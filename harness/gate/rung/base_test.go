package rung

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing/fstest"
)

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// complete is an evidence directory that passes every rung.
func complete() map[string]string {
	const log = "1 passed\n"
	return map[string]string{
		"plan.json": `{"skill_version": "1", "profile": "strict", "stop_reason": "PASS", "last_known_state": "", "loop_budgets": {},
			"localization_summary": [], "verification_rung_target": 65537, "verification_rung": 641, "seed_agreement": true,
			"null_checks_performed": true, "forecast_summary": [], "env_snapshot_pointer": "env_snapshot.json",
			"evidence_manifest_pointer": "evidence_manifest.json"}`,
		"run_log.txt": log, "repro_red.log": "red\n", "repro_green.log": "green\n",
		"tests.json":        `{"command": "pytest -q", "exit_code": 0, "failing_tests_before": [], "passing_tests_after": ["t::a"]}`,
		"artifacts.json":    `{"artifacts": [{"file_path": "a.bin", "sha256": "x", "role": "proof"}]}`,
		"null_checks.json":  `{"inputs_checked": [], "null_cases_handled": 2, "zero_cases_distinguished": [], "coercion_violations_detected": 0}`,
		"behavior_hash.txt": "abcd\n", "behavior_hash_verify.txt": "abcd\n",
		"env_snapshot.json": `{"git_commit": "c", "git_dirty": false, "repo_root": ".", "os": "linux", "arch": "amd64", "language_runtimes": {},
			"tool_versions": {}, "timezone": "UTC", "locale": "C"}`,
		"evidence_manifest.json": fmt.Sprintf(`{"schema_version": "1.0.0", "files": [{"file_path": "run_log.txt", "sha256": "%s", "role": "log"}]}`, sum(log)),
	}
}

// bundle are the files of a submission that supports every rung.
func bundle() map[string]string {
	h := strings.Repeat("ab", 32)
	return map[string]string{
		"plan.json":          `{"rung_target": 641, "task_family": "feature", "files_changed": ["a.md"], "goal": "g", "constraints": ["none"]}`,
		"tests.json":         `{"test_command": "pytest", "exit_code": 0, "pass_count": 5, "fail_count": 0}`,
		"behavior_hash.txt":  fmt.Sprintf(`{"seed_42": "%s", "seed_137": "%s", "seed_9001": "%s"}`, h, h, h),
		"security_scan.json": `{"status": "PASS"}`,
	}
}

// changed are files with some replaced: "file" to a text, or to "" for none, or "file:old"
// to what stands there instead of old.
func changed(files, changes map[string]string) fs.FS {
	files = maps.Clone(files)
	for key, text := range changes {
		name, old, replace := strings.Cut(key, ":")
		switch {
		case replace && !strings.Contains(files[name], old):
			panic(key + " is not there")
		case replace:
			files[name] = strings.Replace(files[name], old, text, 1)
		case text == "":
			delete(files, name)
		default:
			files[name] = text
		}
	}
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}
