package enginetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalbox/evalbox/sandbox/ends"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// missingModule is a module that no image has.
const missingModule = "no_such_module"

// preloads gives a class an interpreter that waits for the programs of the suite.
func preloads(modules ...string) func(class *spec.Class) {
	return func(class *spec.Class) {
		class.Preload = &spec.Preload{Modules: modules, Interpreter: []string{"python3", "-u"}, Env: []string{"OF_JOB=1"}}
	}
}

func preloadedJob(job *spec.Job) {
	job.Env = []string{"OF_JOB=1"}
	*job = job.WithSecrets([]string{"SECRET=value"})
}

// wasUsed checks whether the program ran in the interpreter that waited; why is a part of the reason
// why not.
func wasUsed(why string) func(t *testing.T, got observed) {
	return func(t *testing.T, got observed) {
		t.Helper()
		if why == "" {
			assert.Empty(t, got.end.NotPreloaded)
		} else {
			assert.Contains(t, got.end.NotPreloaded, why)
		}
	}
}

// scriptedPreload is [Fake].Preload of a scripted engine.
func scriptedPreload(class spec.Class) string {
	switch modules := class.Preload.Modules; {
	case slices.Contains(modules, missingModule):
		return "ModuleNotFoundError: No module named '" + missingModule + "'"
	case class.Preload.Interpreter[0] != "python3":
		return "it could not be started: exec: no such file or directory"
	}
	return ""
}

// preloadCases are programs whose interpreter waits.
func preloadCases() []programCase {
	const (
		asks   = "import os, sys\nprint('json' in sys.modules, __name__, sys.argv, os.environ['OF_JOB'], os.environ['SECRET'], 'SANDBOX_DEADLINE' in os.environ)\n"
		answer = "%s __main__ ['-c'] 1 value True\n"
	)
	other := func(class *spec.Class) {
		preloads("json")(class)
		class.Preload.Interpreter[0] = "python3.99"
	}
	unfit := func(class *spec.Class) {
		preloads("json")(class)
		class.Preload.Unfit = "the command is not python3"
	}
	yes, no := fmt.Sprintf(answer, "True"), fmt.Sprintf(answer, "False")
	asking := func(name, stdout string, class func(class *spec.Class), why string) programCase {
		return programCase{Program: ends.Program{Name: name, Python: asks, Stdout: stdout}, class: class, job: preloadedJob, fake: prints(stdout), check: wasUsed(why)}
	}
	return []programCase{
		asking("preload", yes, preloads("decimal", "json"), ""),
		asking("preload of a missing module", no, preloads("json", missingModule), missingModule),
		asking("preload of a missing interpreter", no, other, "it could not be started"),
		asking("preload of another program", no, unfit, ""),
		{Program: ends.Program{Name: "preload and a deadline", Python: ignores, Timeout: time.Second, Grace: 200 * time.Millisecond, Deadline: true, Signal: 9, Stdout: "ready\n"},
			class: preloads("json"), fake: fakeIgnores, check: wasUsed("")},
		{Program: ends.Program{Name: "preload and a signal", Python: sleeps, Grace: 2 * time.Second, Signals: []ends.Signal{ends.Stop}, Signal: 15, Stdout: "ready\n"},
			class: preloads("json"), fake: fakeSleeps, check: wasUsed("")},
	}
}
