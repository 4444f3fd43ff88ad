// Package sandbox plans and runs one untrusted program in one fresh container.
//
//	runner, err := sandbox.New(sandbox.WithCatalog(catalog))
//	if err != nil { … }
//	defer runner.Close()
//	res, err := runner.Run(ctx, sandbox.Request{Script: "train.py", Input: "data"})
//
// A [Request] says what to run, [IO] and [Hooks] connect it with the caller. Package
// hostpath resolves its host paths, and package plan turns it and a policy into a
// [spec.Spec]: everything that will be true of the container. An [engine.Engine]
// carries the plan out, and the [Runner] drives it through the life of a run:
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
