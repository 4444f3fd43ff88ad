package enginetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalbox/evalbox/sandbox/engine"
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
	return []programCase{
		{name: "preload", class: preloads("decimal", "json"), job: preloadedJob, python: asks, fake: prints(yes), want: want{stdout: yes}, check: wasUsed("")},
		{name: "preload of a missing module", class: preloads("json", missingModule), job: preloadedJob, python: asks, fake: prints(no), want: want{stdout: no}, check: wasUsed(missingModule)},
		{name: "preload of a missing interpreter", class: other, job: preloadedJob, python: asks, fake: prints(no), want: want{stdout: no}, check: wasUsed("it could not be started")},
		{name: "preload of another program", class: unfit, job: preloadedJob, python: asks, fake: prints(no), want: want{stdout: no}, check: wasUsed("")},
		{name: "preload and a deadline", class: preloads("json"), job: limit(1, 0.2), python: ignores, fake: fakeIgnores,
			want: want{signal: 9, cause: engine.ByDeadline, escalated: true, stdout: "ready\n"}, check: wasUsed("")},
		{name: "preload and a signal", class: preloads("json"), python: sleeps, fake: fakeSleeps, signals: []engine.Signal{engine.Stop},
			want: want{signal: 15, cause: engine.BySignal, stdout: "ready\n"}, check: wasUsed("")},
	}
}
