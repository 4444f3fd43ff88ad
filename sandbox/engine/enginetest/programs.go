package enginetest

import (
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalbox/evalbox/sandbox/ends"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// programCase is one program in one container: a program of the table of ends, or one of the suite that
// looks at what only an engine does.
type programCase struct {
	ends.Program
	// fake stands in for it on a scripted engine; it is nil if the case needs a kernel.
	fake  func(p *Program) int
	class func(class *spec.Class)
	job   func(job *spec.Job)
	// mayDie says that the kernel may kill init in place of the program.
	mayDie bool
	check  func(t *testing.T, got observed)
}

const (
	sleeps  = "import time\nprint('ready')\ntime.sleep(600)\n"
	ignores = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready')\ntime.sleep(600)\n"
)

// prints returns a fake that prints a text and exits with 0.
func prints(text string) func(p *Program) int {
	return func(p *Program) int {
		p.Print(text)
		return 0
	}
}

func fakeSleeps(p *Program) int {
	p.Print("ready\n")
	<-p.Term()
	return Died(15)
}

func fakeIgnores(p *Program) int {
	p.Print("ready\n")
	<-p.Kill()
	return 0
}

// plays returns a fake that prints what a program of the table prints, and ends as the program does.
func plays(of ends.Program) func(p *Program) int {
	return func(p *Program) int {
		if of.Stdin && of.Stdout == of.Input {
			_, _ = io.Copy(p.Stdout(), p.Stdin())
			return of.Code
		}
		before, rest, ok := strings.Cut(of.Stdout, "ready\n")
		if ok {
			p.Print("ready\n")
		} else {
			rest = before
		}
		switch {
		case of.Escalated() || slices.Contains(of.Signals, ends.Kill):
			<-p.Kill()
		case of.Deadline || len(of.Signals) > 0:
			<-p.Term()
		case of.Asked:
			<-p.Soft()
		}
		for range max(1, of.Times) {
			p.Print(rest)
			p.PrintErr(of.Stderr)
		}
		p.End(func(end *engine.End) { end.OOMKilled = of.OOM })
		if of.Signal > 0 {
			return Died(of.Signal)
		}
		return of.Code
	}
}

// cases returns all programs.
var cases = sync.OnceValue(func() []programCase {
	all := slices.Concat(environmentCases(), limitCases(), preloadCases())
	for _, p := range append(ends.Programs(), ends.Numbers()...) {
		all = append(all, programCase{Program: p, fake: plays(p), check: func(t *testing.T, got observed) {
			if least := p.Duration(); least > 0 {
				assert.Greater(t, got.end.Duration, least-100*time.Millisecond, "%+v", got.end)
				assert.Less(t, got.end.Duration, least+10*time.Second, "%+v", got.end) // a machine with other work is late
			} else if p.Times == 0 {
				assert.Less(t, got.took, time.Minute)
			}
		}})
	}
	return all
})

func environmentCases() []programCase {
	arguments := []string{"", " ", "a b", "a\nb", "tab\t", "ü", "\xff\xfe", `"'\$`, "--", "-c", "*", "\x01"}
	environment := []string{"CHANGED=of the job", "EMPTY=", "EQUALS=a=b", "LINES=a\nb", "ODD=\xff\x01 ü", "SPACE= x "}
	pack := func(pairs ...string) string { return strings.Join(pairs, "\x00") }
	return []programCase{
		{Program: ends.Program{Name: "arguments", Stdout: pack(arguments...), Python: "import os, sys\nos.write(1, b'\\0'.join(map(os.fsencode, sys.argv[1:])))\n"},
			job:  func(job *spec.Job) { job.Command = append(job.Command, arguments...) },
			fake: func(p *Program) int { p.Print(pack(p.Job.Command[4:]...)); return 0 }},
		{Program: ends.Program{Name: "environment", Stdout: pack(append(environment, "KEPT="+classEnv)...), Python: "import os\nnames = (b'CHANGED', b'EMPTY', b'EQUALS', b'LINES', b'ODD', b'SPACE', b'KEPT')\n" +
			"os.write(1, b'\\0'.join(n + b'=' + os.environb[n] for n in names))\n" +
			"assert os.environ['PATH'] and not [n for n in os.environ if n.startswith('LD_')]\n"},
			job: func(job *spec.Job) { job.Env = environment },
			fake: func(p *Program) int {
				var pairs []string
				for _, name := range []string{"CHANGED", "EMPTY", "EQUALS", "LINES", "ODD", "SPACE", "KEPT"} {
					pairs = append(pairs, name+"="+p.Env()[name])
				}
				p.Print(pack(pairs...))
				return 0
			}},
		{Program: ends.Program{Name: "working directory", Python: "import os; print(os.getcwd())", Stdout: "/usr/share\n"}, fake: func(p *Program) int { p.Print(p.Class.WorkDir + "\n"); return 0 },
			class: func(class *spec.Class) { class.WorkDir = "/usr/share" }},
		{Program: ends.Program{Name: "files that are left", Python: "open('/work/model.pkl', 'w').write('x' * 1000)\nopen('/work/.hidden', 'w')\n"},
			fake: func(p *Program) int {
				p.End(func(end *engine.End) {
					end.Left = &wire.Left{Files: 1, Bytes: 1000, Complete: true, Names: []string{"model.pkl"}}
				})
				return 0
			},
			check: func(t *testing.T, got observed) {
				assert.Equal(t, &wire.Left{Files: 1, Bytes: 1000, Complete: true, Names: []string{"model.pkl"}}, got.end.Left)
			}},
		{Program: ends.Program{Name: "aliases", Stdout: "1 /tmp\nNo space left on device\n", Python: "import os\nopen('/work/data/x', 'w').write('1')\nprint(open('/links/in/deep').read(), os.readlink('/work/data'))\n" +
			"try: open('/links/file', 'w').write('x')\nexcept OSError as e: print(e.strerror)\n"},
			class: func(class *spec.Class) {
				class.Tmpfs = append(class.Tmpfs, spec.Tmpfs{Target: "/links", SizeBytes: 64 << 10, Inodes: 3})
			},
			job: func(job *spec.Job) {
				job.Aliases = []spec.Alias{{Name: "/work/data", Target: "/tmp"}, {Name: "/links/in/deep", Target: "/work/data/x"}}
			},
			fake: prints("1 /tmp\nNo space left on device\n")},
		{Program: ends.Program{Name: "no deadline variable", Python: "import os\nprint(os.environ.get('SANDBOX_DEADLINE'))\n", Stdout: "None\n"},
			job: func(job *spec.Job) { job.NoDeadlineEnv, job.Env = true, nil },
			fake: func(p *Program) int {
				_, set := p.Env()[spec.DeadlineEnv]
				p.Print(map[bool]string{true: "set\n", false: "None\n"}[set])
				return 0
			}},
		{Program: ends.Program{Name: "no time limit", Python: "import time; time.sleep(1)"}, fake: func(p *Program) int { p.Sleep(time.Second); return 0 },
			job: func(job *spec.Job) { job.TimeoutSeconds = 0 }},
		{Program: ends.Program{Name: "usage", Python: "import time\nb = bytearray(32 << 20)\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"},
			fake: prints(""), check: func(t *testing.T, got observed) {
				if got.end.Usage.Source == "" {
					t.Log("the engine reports no usage")
					return
				}
				assert.GreaterOrEqual(t, got.end.Usage.CPU, 300*time.Millisecond)
				assert.GreaterOrEqual(t, got.end.Usage.PeakMemory, int64(32<<20))
				assert.LessOrEqual(t, got.end.Usage.PeakMemory, int64(memory))
			}},
	}
}
