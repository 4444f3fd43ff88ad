package record

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDistrust(t *testing.T) {
	const me, other, dir = 1000, 1001, fs.ModeDir
	const foreign, writable = "belongs to the user with the ID 1001", "other users may change"
	for name, c := range map[string]struct {
		mode   fs.FileMode
		uid    int
		gid    int
		itself bool
		want   string
	}{
		"mine":                            {dir | 0o700, me, me, true, ""},
		"mine, readable":                  {dir | 0o755, me, 50, true, ""},
		"mine, own group":                 {dir | 0o775, me, me, true, ""},
		"mine, another group":             {dir | 0o770, me, 50, true, writable + " (mode 0770)"},
		"mine, everybody":                 {dir | 0o702, me, me, true, writable},
		"mine, everybody, sticky":         {dir | fs.ModeSticky | 0o777, me, me, true, writable},
		"root's":                          {dir | 0o755, 0, 0, true, "belongs to the user with the ID 0"},
		"another's":                       {dir | 0o700, other, other, true, foreign},
		"a file":                          {0o700, me, me, true, "is not a directory"},
		"above: root's":                   {dir | 0o755, 0, 0, false, ""},
		"above: root's, group of root":    {dir | 0o775, 0, 0, false, ""},
		"above: root's, a group":          {dir | 0o775, 0, 50, false, writable},
		"above: mine":                     {dir | 0o755, me, me, false, ""},
		"above: everybody, sticky":        {dir | fs.ModeSticky | 0o777, 0, 0, false, ""},
		"above: everybody":                {dir | 0o777, 0, 0, false, writable},
		"above: another's":                {dir | 0o755, other, other, false, foreign},
		"above: another's, sticky":        {dir | fs.ModeSticky | 0o777, other, other, false, foreign},
		"above: not in the namespace":     {dir | 0o755, unmapped, unmapped, false, ""},
		"itself: not in the namespace":    {dir | 0o755, unmapped, unmapped, true, "belongs to"},
		"above: not in it, and writable":  {dir | 0o777, unmapped, unmapped, false, writable},
		"above: a file in place of a dir": {0o644, me, me, false, "is not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			rule := distrust(c.mode, c.uid, c.gid, me, c.itself)
			if c.want == "" {
				require.Empty(t, rule)
			} else {
				require.Contains(t, rule, c.want)
			}
		})
	}
}

func TestStateDirectoryOfOthersIsRefused(t *testing.T) {
	base := t.TempDir()
	state := filepath.Join(base, "open", "state")
	store, err := Open(state)
	require.NoError(t, err)
	require.NoError(t, store.Prepare(), "it is made")
	for _, dir := range []string{state, store.RunsDir(), store.LocksDir()} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), dir)
	}
	require.NoError(t, store.Prepare())

	require.NoError(t, os.Chmod(state, 0o777))
	_, err = store.Create("r1")
	require.EqualError(t, err, `state directory "`+state+`": other users may change (mode 0777); take the permission away with chmod go-w`)
	require.NoError(t, os.Chmod(state, 0o700))

	link := filepath.Join(base, "link")
	require.NoError(t, os.Symlink(state, link))
	linked, err := Open(link)
	require.NoError(t, err)
	require.NoError(t, linked.Prepare())
	require.NoError(t, os.Chmod(filepath.Dir(state), 0o777))
	require.ErrorContains(t, linked.Prepare(), `lies in "`+filepath.Dir(state)+`", which other users may change`)
	require.NoError(t, os.RemoveAll(state))
	require.ErrorContains(t, store.Prepare(), "other users may change")
	require.NoDirExists(t, state, "nothing was made")
}
