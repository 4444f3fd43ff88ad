package evalbox_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/probe"
)

// TestPromisesAreTested: every row of every table in docs/security.md names tests that exist. A
// promise whose test was renamed or deleted is found, and so is a table without tests.
func TestPromisesAreTested(t *testing.T) {
	text, err := os.ReadFile("docs/security.md")
	require.NoError(t, err)
	functions, probes := testFunctions(t), probeNames()
	lines := strings.Split(string(text), "\n")
	promises := 0
	for i, line := range lines {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		named := strings.TrimSpace(cells[len(cells)-1])
		header := i == 0 || !strings.HasPrefix(lines[i-1], "|")
		switch {
		case header:
			assert.Equal(t, "test", named, "line %d: the last column of the table has the tests", i+1)
			continue
		case strings.HasPrefix(line, "|---"):
			continue
		}
		promises++
		for test := range strings.SplitSeq(named, ", `") {
			test = strings.Trim(test, "`")
			name, isProbe := strings.CutPrefix(test, "probe: ")
			if isProbe {
				assert.True(t, probes[name], "line %d: sandbox/probe has no probe %q", i+1, name)
			} else {
				assert.True(t, functions[test], "line %d: there is no test %q", i+1, test)
			}
		}
	}
	require.Greater(t, promises, 70, "the tables were not found")
}

// testFunctions returns the tests of all packages as DIRECTORY.NAME, and the parts of the
// conformance suite of engines.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	const suite = "sandbox/engine/enginetest"
	function := regexp.MustCompile(`(?m)^func ([Tt]est[A-Z]\w*)\(t \*testing\.T`)
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "." {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") && (dir != suite || !strings.HasSuffix(path, ".go")) {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range function.FindAllStringSubmatch(string(text), -1) {
			found[dir+"."+match[1]] = true
		}
		return err
	}))
	return found
}

func probeNames() map[string]bool {
	names := map[string]bool{}
	for _, batch := range probe.Batches() {
		for _, question := range batch.Questions {
			names[question.Group+"/"+question.Name] = true
		}
	}
	for _, run := range probe.Runs() {
		names[run.Group+"/"+run.Name] = true
	}
	return names
}
