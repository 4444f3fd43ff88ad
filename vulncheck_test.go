package evalbox_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVulncheckTellsAFindingFromAMissingDatabase runs hack/vulncheck.sh with stand-ins for
// govulncheck.
func TestVulncheckTellsAFindingFromAMissingDatabase(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		code   int
		says   string
	}{
		"nothing":              {`echo "No vulnerabilities found."`, 0, "No vulnerabilities found."},
		"a finding":            {`echo "Vulnerability #1: GO-2026-0001"; exit 3`, 3, "GO-2026-0001"},
		"no network":           {`echo "govulncheck: fetching vulnerabilities: Get \"https://x\": no such host" >&2; exit 1`, 4, "NOTHING WAS CHECKED: the vulnerability database file:///db"},
		"no copy":              {`echo "creating client: stat /db: no such file or directory" >&2; exit 1`, 4, "NOTHING WAS CHECKED"},
		"code that is broken":  {`echo "govulncheck: loading packages: syntax error" >&2; exit 1`, 1, "syntax error"},
		"a finding with words": {`echo "govulncheck: fetching vulnerabilities: x" >&2; exit 3`, 3, "fetching"},
		"its arguments":        {`[ "$*" = "-db file:///db ./policy" ]`, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tool := filepath.Join(t.TempDir(), "govulncheck")
			require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\n"+test.script+"\n"), 0o700))
			cmd := exec.CommandContext(t.Context(), "hack/vulncheck.sh", tool, "./policy")
			cmd.Env = append(os.Environ(), "VULNDB=file:///db")
			output, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = nil
			}
			require.NoError(t, err)
			require.Equal(t, test.code, cmd.ProcessState.ExitCode(), "%s", output)
			require.Contains(t, string(output), test.says)
		})
	}
}
