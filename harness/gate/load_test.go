package gate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsLock(t *testing.T) {
	for text, want := range map[string]bool{
		`{"schema": "evalbox/wish-lock/v1"}`: true, ` {"schema":"evalbox/wish-lock/v2"}`: true,
		`{"schema": "evalbox/wish/v1"}`: false, `schema: evalbox/wish-lock/v1`: false, ``: false, `{`: false, `[]`: false,
	} {
		require.Equal(t, want, isLock([]byte(text)), text)
	}
}

// TestReportsAreNoPartOfTheWorkspace: a wish that is sealed on the spot leaves them out, a
// sealed wish has to.
func TestReportsAreNoPartOfTheWorkspace(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "work", "ci"), 0o755))
	require.NoError(t, os.Symlink("work", filepath.Join(dir, "link")))
	t.Chdir(dir)
	job := func(exclude ...string) *Job {
		o := &Job{WishDir: dir}
		o.Lock.Wish.IOBoundary, o.Lock.Wish.Exclude = "work", exclude
		return o
	}
	o := job("dist")
	require.NoError(t, o.excludeReports([]string{"link/ci/junit.xml", "page.md"}, true))
	require.Equal(t, []string{"dist", "ci/junit.xml"}, o.Lock.Wish.Exclude)
	require.Equal(t, []string{"work/ci/junit.xml"}, o.Ignore)

	o = job("ci/")
	o.Sealed = true
	require.NoError(t, o.excludeReports([]string{"work/ci/junit.xml"}, false))
	require.Equal(t, []string{"ci/"}, o.Lock.Wish.Exclude, "a sealed wish stays as it is")
	err := o.excludeReports([]string{"work/page.md"}, false)
	require.ErrorContains(t, err, "output work/page.md: lies in the workspace")
	var file *FileError
	require.ErrorAs(t, err, &file)
	require.Contains(t, file.Hint(), "exclude")
	require.NoError(t, o.excludeReports([]string{"x.xml"}, false))
}
