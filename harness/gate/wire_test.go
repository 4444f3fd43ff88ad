package gate_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// TestWireKeys: the keys of all documents of a gate directory are what others read
// (RT-09, RT-10, RT-15, RT-16, RO-07). A dot stands for the first element of a list.
func TestWireKeys(t *testing.T) {
	o := options(t, newFake(t), oneTest)
	_, err := o.run(t.Context())
	require.NoError(t, err)
	for at, want := range map[string]string{
		evidence.RunManifestFile: "allowed artifact_paths baseline egress env_policy exclude gate_commands gates io_boundary mode name " +
			"protected_paths read_only_paths repo rules schema timeout_caps toolchain uncounted wish_sha256 workspace",
		evidence.RunManifestFile + " gates .":      "argv cmd env expect_exit index kind report report_path timeout_ms",
		evidence.RunManifestFile + " env_policy":   "hash_seed locale timezone vars",
		evidence.RunManifestFile + " timeout_caps": "disk_bytes log_bytes memory_bytes milli_cpus pids timeout_ms",
		evidence.RunManifestFile + " toolchain":    "image image_id locked mounts python",
		evidence.RunManifestFile + " repo":         "baseline_commit baseline_rev commit dirty root",
		evidence.RunManifestFile + " mode":         "allow_unobserved claim_grade execute offline repeats replay sealed strict tool_registry tools",
		evidence.PlanFile: "env_snapshot_pointer evidence_manifest_pointer forecast_summary gate_commands last_known_state localization_summary " +
			"loop_budgets null_checks_performed profile seed_agreement skill_version stop_reason verification_rung verification_rung_target",
		evidence.TestsFile: "command commands exit_code failing_tests_before passing_tests_after schema",
		evidence.TestsFile + " commands .": "argv baseline cases cases_dropped command counts ending exit_code expect_exit failing_tests_before index kind " +
			"log_sha256 logs_complete passing_tests_after problem source started",
		evidence.TestsFile + " commands . counts":  "errored failed passed skipped total xfailed xpassed",
		evidence.TestsFile + " commands . cases .": "id message name outcome suite",
		evidence.EnvSnapshotFile: "arch engine git_commit git_dirty image image_id image_locked language_runtimes locale os repo_root runtime schema " +
			"timezone tool_versions toolchain workspace",
		evidence.ObservationsFile:                 "commands schema",
		evidence.ObservationsFile + " commands .": "changed complete counted evidence index network network_attempts refused set touched watched",
		evidence.NormalizationFile:                "rules schema suspects suspects_total",
		evidence.FindingsFile:                     "differences pre",
		evidence.ArtifactsFile:                    "artifacts",
		evidence.ArtifactsFile + " artifacts .":   "file_path role sha256",
		evidence.ManifestFile:                     "files schema_version",
		evidence.ManifestFile + " files .":        "file_path role sha256",
		evidence.VerdictFile: "behavior_hash evidence_summary findings manifest_sha256 replay_commands schema status stop_class stop_reason " +
			"wish_sha256",
		evidence.VerdictFile + " evidence_summary": "commands counts files missing network_counted watched",
		evidence.GatesFile:                         "behavior_hash commands image image_id io_boundary offline wish_sha256 workspace",
		evidence.GatesFile + " commands .":         "cmd ending expect_exit log_sha256 passed",
	} {
		path := strings.Fields(at)
		text, err := os.ReadFile(filepath.Join(o.OutDir, path[0]))
		require.NoError(t, err)
		var value any
		require.NoError(t, json.Unmarshal(text, &value))
		for _, key := range path[1:] {
			if key == "." {
				list := value.([]any)
				require.NotEmpty(t, list, at)
				value = list[0]
				continue
			}
			value = value.(map[string]any)[key]
		}
		require.Equal(t, want, strings.Join(slices.Sorted(maps.Keys(value.(map[string]any))), " "), at)
	}
}
