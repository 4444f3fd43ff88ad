package wire

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scratchDir is a working directory of the program's user.
func scratchDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(publicDir(t), "work")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "final"), 0o755)) // as in a container
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(dir, programUID, programUID))
	}
	return dir
}

// runScratch runs a job whose working directory has another file system at final.
func runScratch(t *testing.T, job Job) (*container, Report) {
	t.Helper()
	limits := fmt.Sprintf(`sh -c 'mount -t tmpfs -o mode=1777 tmpfs %s/final && exec "$@"' sh`, job.Scratch)
	c := tappedContainer(t, limits, func(r *Receiver) io.Writer { return r.Stdout() })
	c.begin(job)
	return c, c.end()
}

func TestLeft(t *testing.T) {
	many := "i=0; while [ $i -lt 7 ]; do i=$((i+1)); head -c $i /dev/zero > f$i; done"
	tests := map[string]struct {
		script string
		want   Left
	}{
		"nothing":                         {"true", Left{Complete: true}},
		"a file":                          {"printf abc > model.pkl", Left{Files: 1, Bytes: 3, Complete: true, Names: []string{"model.pkl"}}},
		"below":                           {"mkdir -p a/b; printf abcd > a/b/x; printf a > y", Left{Files: 2, Bytes: 5, Complete: true, Names: []string{"a/b/x", "y"}}},
		"the largest":                     {many, Left{Files: 7, Bytes: 28, Complete: true, Names: []string{"f7", "f6", "f5", "f4", "f3"}}},
		"caches":                          {"mkdir -p .cache a/__pycache__; touch .cache/x a/__pycache__/y .z", Left{Complete: true}},
		"final":                           {"echo kept > final/x", Left{Complete: true}},
		"links":                           {"ln -s /etc etc; ln -s final/x y; mkfifo fifo", Left{Complete: true}},
		"a closed one":                    {"mkdir a; touch a/x; chmod 0 a", Left{}},
		"too deep":                        {"d=.; i=0; while [ $i -lt 20 ]; do i=$((i+1)); d=$d/a; done; mkdir -p $d; touch $d/x y", Left{Files: 1, Names: []string{"y"}}},
		"too many":                        {"mkdir a; cd a; seq 21000 | xargs touch", Left{Files: 19_999, Names: []string{"", "", "", "", ""}}},
		"a sparse giant":                  {"truncate -s 8T x; truncate -s 8T y", Left{Files: 2, Bytes: 16 << 40, Complete: true, Names: []string{"x", "y"}}},
		"a foul name":                     {`printf x > "$(printf 'a\nb\033\377')"`, Left{Files: 1, Bytes: 1, Complete: true, Names: []string{"a\nb\x1b\xff"}}},
		"a loop of the working directory": {"ln -s . loop; printf x > x", Left{Files: 1, Bytes: 1, Complete: true, Names: []string{"x"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := sh(test.script)
			job.Scratch = scratchDir(t)
			job.Dir = job.Scratch
			c, report := runScratch(t, job)
			require.Equal(t, Exited, report.Kind, "%s", c.errText.String())
			require.NotNil(t, report.Left)
			switch name {
			case "too many": // which ones is up to the file system
				assert.Len(t, report.Left.Names, 5)
				report.Left.Names = test.want.Names
				assert.False(t, report.Left.Complete)
				if report.Left.Files < test.want.Files { // a slow machine ran out of time
					report.Left.Files = test.want.Files
				}
			case "a sparse giant":
				assert.ElementsMatch(t, test.want.Names, report.Left.Names)
				report.Left.Names = test.want.Names
			}
			assert.Equal(t, test.want, *report.Left)
			assert.Zero(t, c.bye())
		})
	}
}

// TestLeftOfAKilledProgram: how a program ends makes no difference.
func TestLeftOfAKilledProgram(t *testing.T) {
	job := sh("echo x > x; echo ready; sleep 600")
	job.Scratch, job.Timeout = scratchDir(t), time.Second
	job.Dir = job.Scratch
	_, report := runScratch(t, job)
	require.Equal(t, StopDeadline, report.Stop)
	require.Equal(t, &Left{Files: 1, Bytes: 2, Complete: true, Names: []string{"x"}}, report.Left)

	_, report = run(t, sh("true"))
	require.Nil(t, report.Left)
	job = Job{Args: []string{"/missing"}, Scratch: "/"}
	_, report = run(t, job)
	require.Nil(t, report.Left)
}

func TestAliases(t *testing.T) {
	job := sh("echo 1 > data; cat deep/er/final/x; readlink final-x; echo 2 > final-x; cat final/x; rm data")
	job.Scratch = scratchDir(t)
	job.Dir = job.Scratch
	for path, target := range map[string]string{"data": "final/x", "final-x": "final/x", "deep/er/final": job.Scratch + "/final"} {
		job.Aliases = append(job.Aliases, Alias{job.Scratch + "/" + path, target})
	}
	c, report := runScratch(t, job)
	requireExit(t, c, report, 0)
	require.Equal(t, "1\nfinal/x\n2\n", c.outText.String())
	require.Equal(t, &Left{Complete: true}, report.Left)

	// A link that cannot be made keeps the program from starting.
	for path, errno := range map[string]syscall.Errno{job.Scratch + "/final": syscall.EEXIST, "/proc/alias": syscall.ENOENT} {
		job.Aliases = []Alias{{path, "x"}}
		_, report := runScratch(t, job)
		require.Equal(t, NotStarted, report.Kind)
		require.Equal(t, "alias", report.Stage.String())
		require.Equal(t, errno, report.Errno())
	}
}
