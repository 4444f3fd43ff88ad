// Package sandbox plans and runs one untrusted program in one fresh container.
//
//	engine, err := docker.FromEnv()
//	if err != nil { … }
//	runner, err := sandbox.New(sandbox.WithEngine(engine), sandbox.WithCatalog(catalog))
//	if err != nil { … }
//	defer runner.Close()
//	res, err := runner.Run(ctx, sandbox.Request{Script: "train.py", Input: "data"})
//
// A [Request] says what to run. [Plan], a pure function, turns it and a policy
// into a [Spec]: everything that will be true of the container. An [Engine]
// carries the Spec out, and the [Runner] drives it through the life of a run:
// image, workspace, create, attach, wait, start, stream, end, inspect, collect,
// remove, result.
//
// A result says what the program did; an error says that we failed. The program
// gets no network, no capabilities, a read-only root, bounded memory,
// processors, processes, time, disk and output; whatever was opened stands in
// result.Enforced. What a container cannot protect against (bugs of the kernel
// and of the engine, side channels, a score that the program itself made up) is
// listed in docs/security.md.
package sandbox
