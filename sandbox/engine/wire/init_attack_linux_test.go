package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine/enginetest/hostile"
)

// TestHostilePrograms runs the attacks that need no container against the bare init. The
// conformance suite runs the same ones in containers.
func TestHostilePrograms(t *testing.T) {
	for _, p := range hostile.Programs() {
		t.Run(p.Name, func(t *testing.T) {
			job := python(p.Python)
			job.Timeout, job.Grace, job.Stdin = p.Timeout, p.Grace, p.Input > 0
			limits := ""
			if p.NoQuota {
				limits = "prlimit --sigpending=0:0"
			}
			c := tappedContainer(t, limits, (*Receiver).Stdout)
			c.begin(job)
			if job.Stdin {
				in := InputWriter(c.stdin)
				_, err := in.Write(make([]byte, p.Input))
				require.NoError(t, err)
				require.NoError(t, in.Close())
			}
			report := c.end()
			require.Regexp(t, p.Said, c.outText.String(), "%s", c.errText.String())
			require.Zero(t, report.ProcessesLeft)
			switch {
			case p.Deadline:
				require.Equal(t, StopDeadline, report.Stop)
				require.True(t, report.Escalated)
				require.Less(t, report.Wall, p.Timeout+5*time.Second, "it kept init from its deadline")
			case p.Forged && report.Stop != StopNone:
				require.Contains(t, []Stop{StopTerm, StopKill}, report.Stop)
			case p.Forged:
				requireExit(t, c, report, hostile.Success)
				return
			default:
				require.Equal(t, StopNone, report.Stop)
			}
			kind, value := Exited, p.Code
			if p.Signal != 0 {
				kind, value = Signaled, p.Signal
			}
			require.Equal(t, kind, report.Kind, "%d\n%s", report.Value, c.errText.String())
			require.Equal(t, value, report.Value)
			require.NotZero(t, c.bye())
		})
	}
}

// TestNoMoreProcesses checks that init reports although the program has used up the process
// limit of its user.
func TestNoMoreProcesses(t *testing.T) {
	job := python(hostile.Prelude + `
try:
    while True:
        if os.fork() == 0:
            while True: time.sleep(1000)
except OSError as e: print(errno.errorcode[e.errno], flush=True)
os._exit(42)`)
	job.Rlimits = []Rlimit{{Resource: 6, Soft: 40, Hard: 40}} // RLIMIT_NPROC
	c, report := run(t, job)
	requireExit(t, c, report, 42)
	require.Equal(t, "EAGAIN\n", c.outText.String())
}
