//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// benchCase is one thing to measure.
type benchCase struct {
	name, what string
	// task makes what every side runs, and sides are the sides that can run it, in the order of
	// the table. The ratios are those to the first of against; see [oneCase].
	task  func(dir string) (task, error)
	sides []string
	// rounds, unless 0, bounds how often a slow case is measured.
	rounds int
	// own measures a case of another form.
	own func(b *bench, ctx context.Context, c *oneCase, rounds int) error
	// unit is what is measured, if not milliseconds; against is the side that the others are
	// compared with, if not docker run.
	unit, against string
}

// task is what all sides of a case run.
type task struct {
	program []string
	// input is the directory of the inputs; empty for an empty one.
	input string
	// preload are the modules that a waiting interpreter has imported.
	preload []string
}

// The names of the sides. Their text is what the tables have.
const (
	sideCLI        = "sandbox run"
	sideLibrary    = "library"
	sidePool       = "pool"
	sidePoolJob    = "pool, job to report"
	sidePreload    = "pool + preload"
	sidePreloadJob = "pool + preload, job to report"
	sideKeeper     = "sandbox run, keeper"
	sideAgent      = "run_python over MCP"
	sideDocker     = "docker run --rm"
	sideExec       = "docker exec"
	sidePython     = "containers.run"
	sideRunc       = "runc run"
	sideBwrap      = "bwrap"
	sideGVisor     = "runsc run"
	sideHost       = "python3, host"
	sideInside     = "python3, running container"
	sideBatch      = "sandbox batch -j 2"
	sideXargs      = "xargs -P 2 docker run --rm"
	sideTen        = "10 runs"
	sideHundred    = "100 runs"
	sideThousand   = "1,000 runs"
	sideInit       = "init"
	sideShim       = "shim"
	sideRootfs     = "process of the root file system"
	sideContainer  = "all of them"
	sideSyncResult = "fsync of result.json"
	sideSyncNote   = "fsync of the note about ./final"
	sideUnsynced   = "no fsync"
)

// everySide can run anything that needs neither inputs nor outputs.
var everySide = []string{
	sideCLI, sideLibrary, sidePool, sidePreload, sideKeeper, sideDocker, sideExec, sidePython, sideRunc, sideBwrap, sideGVisor, sideInside, sideHost,
}

const (
	useModules = `import numpy, pandas, sklearn.linear_model
x = numpy.arange(1000.0).reshape(-1, 1)
frame = pandas.DataFrame({"x": x[:, 0], "y": 2 * x[:, 0] + 1})
model = sklearn.linear_model.LinearRegression().fit(frame[["x"]], frame["y"])
print(round(float(model.coef_[0]), 3))`

	outputMB    = 100
	printOutput = `import sys
block = (b"x" * 99 + b"\n") * 10000
for _ in range(%d): sys.stdout.buffer.write(block)`

	outputFiles = 10000
	writeFiles  = `import os
for d in range(100):
    os.mkdir("/work/final/%%d" %% d)
    for f in range(%d // 100):
        with open("/work/final/%%d/%%d" %% (d, f), "w") as file: file.write("1\n")`

	inputDirs, inputFiles, inputFileBytes = 10, 100, 1 << 20
	readInput                             = `import os
sizes = [os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk("/work/input") for f in files]
assert len(sizes) == %d and sum(sizes) == %d, (len(sizes), sum(sizes))`
)

// cases are all of them, in the order of the table.
var cases = []benchCase{
	{name: "pass", what: "python3 -c pass", task: code("pass"), sides: everySide},
	{name: "print", what: "python3 -c 'print(1)'", task: code("print(1)"), sides: []string{sidePool, sidePreload, sideAgent, sideDocker, sideInside}, against: sideInside},
	{name: "import", what: "import and use numpy, pandas and scikit-learn", task: code(useModules, "numpy", "pandas", "sklearn.linear_model"), sides: everySide},
	{name: "output", what: fmt.Sprintf("%d MB of output", outputMB), task: code(fmt.Sprintf(printOutput, outputMB)),
		sides: []string{sideCLI, sideKeeper, sideDocker, sideRunc, sideBwrap}},
	{name: "files", what: "10,000 output files", task: code(fmt.Sprintf(writeFiles, outputFiles)), sides: []string{sideCLI, sideLibrary, sidePool, sideKeeper, sideDocker, sideRunc}, rounds: 5},
	{name: "input", what: "an input tree of 1 GB", task: inputTree, sides: []string{sideCLI, sideLibrary, sidePool, sideKeeper, sideDocker, sidePython, sideRunc, sideBwrap, sideGVisor}},
	{name: "batch", what: "200 scripts with 2 workers, until nothing is left", own: (*bench).batch,
		against: sideXargs, rounds: 3},
	{name: "growth", what: "one run after 10, 100 and 1,000 others in the same state directory, by the same process",
		own: (*bench).growth, against: sideTen},
	{name: "fsync", what: "one file of a run that is on the disk before the run continues", own: (*bench).fsync, against: sideUnsynced},
	{name: "waiting", what: "heap and stacks of each run, of 10 and of 1,000 that wait, on an engine in memory", own: (*bench).waitingMemory,
		unit: "KiB", against: sideTen, rounds: 5},
	{name: "goroutines", what: "goroutines of each run, of 10 and of 1,000 that wait, on an engine in memory", own: (*bench).waitingGoroutines,
		unit: "goroutines", against: sideTen, rounds: 5},
	{name: "memory", what: "resident memory of one container that waits for its job", own: (*bench).memory, unit: "KiB",
		against: sideContainer},
}

// code is a task that runs Python code, which imports modules.
func code(text string, modules ...string) func(string) (task, error) {
	return func(string) (task, error) {
		return task{program: []string{"python3", "-c", text}, preload: modules}, nil
	}
}

// inputTree is a task that looks at every file of a tree.
func inputTree(dir string) (task, error) {
	tree := filepath.Join(dir, "tree")
	text := strings.Repeat("x", inputFileBytes)
	for d := range inputDirs {
		sub := filepath.Join(tree, fmt.Sprint(d))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return task{}, err
		}
		for f := range inputFiles {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(f)), []byte(text), 0o644); err != nil {
				return task{}, err
			}
		}
	}
	t, err := code(fmt.Sprintf(readInput, inputDirs*inputFiles, inputDirs*inputFiles*inputFileBytes))("")
	t.input = tree
	return t, err
}
