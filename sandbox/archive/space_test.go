//go:build unix

package archive

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ask asks the script for the space, which runs here, with programs of our own in
// place of some of the system's.
func ask(t *testing.T, dir string, programs map[string]string) (Space, error) {
	t.Helper()
	return ReadSpace(answers(t, "space", dir, programs))
}

// answers are the lines of the script's answer.
func answers(t *testing.T, question, dir string, programs map[string]string) func() (string, error) {
	t.Helper()
	bin := t.TempDir()
	for name, text := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	cmd := exec.Command("/bin/sh", "-c", Script, "watcher", dir, "100")
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader(question + "\n")
	out, err := cmd.Output()
	require.NoError(t, err)
	lines := bufio.NewReader(strings.NewReader(string(out)))
	return func() (string, error) { return lines.ReadString('\n') }
}

func TestScriptTellsFreeSpaceOfAFolderThatIsNotThereYet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "final")
	free, err := ReadFree(answers(t, "free", dir, nil))
	require.NoError(t, err)
	require.Positive(t, free)
	_, err = ReadFree(answers(t, "free", dir, map[string]string{"df": "exit 1"}))
	require.Error(t, err)
	_, err = ReadFree(answers(t, "free", dir, map[string]string{"df": "echo / 1 1 5 1% /"}))
	require.NoError(t, err)
	_, err = ReadFree(func() (string, error) { return "entries 1\n", nil })
	require.Error(t, err)
}

func TestScriptTellsWhatItSees(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b\nc", "d"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d", "f"), make([]byte, 1<<20), 0o600))
	space, err := ask(t, dir, nil)
	require.NoError(t, err)
	require.Equal(t, int64(6), space.Entries, "a line break counts once more")
	require.GreaterOrEqual(t, space.Used, int64(1<<20))
	require.Positive(t, space.Free)
	require.False(t, space.TooDeep)
}

// TestScriptTellsWhatItDoesNotSee: BusyBox's find and du complain of a path that is
// too long and go on, and count nothing below it.
func TestScriptTellsWhatItDoesNotSee(t *testing.T) {
	const deep, vanished = "echo 'x: ./d/d: File name too long' >&2; ", "echo 'x: ./d/d: No such file or directory' >&2; "
	for name, test := range map[string]struct {
		find, du string
		deep     bool
		fails    string
	}{
		"well":                   {"echo .", "echo '4\t.'", false, ""},
		"something went away":    {vanished + "echo .; exit 1", vanished + "echo '4\t.'; exit 1", false, ""},
		"too deep for find":      {deep + "echo .; exit 1", "echo '4\t.'", true, ""},
		"too deep for du":        {"echo .", vanished + deep + "echo '4\t.'; exit 1", true, ""},
		"as musl says it":        {"echo 'find: ./d: Filename too long' >&2; echo .", "echo '4\t.'", true, ""},
		"find fails":             {"echo 'find: ./d: Input/output error' >&2; echo .; exit 1", "echo '4\t.'", false, "find or du failed"},
		"du fails":               {"echo .", "echo 'du: ./d: Cannot allocate memory' >&2; echo '4\t.'; exit 1", false, "find or du failed"},
		"find is killed":         {"echo .; kill -9 $$", "echo '4\t.'", false, "find or du failed"},
		"du is killed":           {"echo .", "kill -9 $$", false, "find or du failed"},
		"too deep, and it fails": {"echo 'find: x: Input/output error' >&2; " + deep + "echo .", "echo '4\t.'", true, ""},
		"a name that lies":       {"printf 'find: ./d\\nx: No such file or directory\\n/d: File name too long\\n' >&2; echo .", "echo '4\t.'", true, ""},
		"too many":               {"while :; do echo ./x; done", "echo '4\t.'", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			space, err := ask(t, t.TempDir(), map[string]string{"find": test.find, "du": test.du})
			if test.fails != "" {
				require.ErrorContains(t, err, test.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.deep, space.TooDeep)
			switch {
			case name == "too many":
				require.Equal(t, Space{Free: space.Free, Entries: 100, Used: -1}, space)
			case !test.deep:
				require.Equal(t, Space{Free: space.Free, Entries: 1, Used: 4096}, space)
			}
		})
	}
}
