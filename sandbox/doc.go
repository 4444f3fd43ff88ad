// Package sandbox plans and runs one untrusted program in one fresh container.
//
//	engine, err := docker.FromEnv()
//	if err != nil { … }
//	runner, err := sandbox.New(sandbox.WithEngine(engine), sandbox.WithCatalog(catalog))
//	if err != nil { … }
//	defer runner.Close()
//	res, err := runner.Run(ctx, sandbox.Request{Script: "train.py", Input: "data"})
//
// [Runner.Run] takes ten steps. Packages below this one do most of the work:
//
//  1. plan: package hostpath resolves the host paths, and package plan makes a [spec.Spec],
//     which is everything that will be true of the container
//  2. image: the engine finds it, and it is compared with the lock
//  3. lease: package gpu lends the GPUs
//  4. stage: package stage makes the record, the copy of the script, ./final and working
//     copies; packages egress and observe add the proxy and the observation
//  5. prepare: the engine makes a container in which only init waits, and what init sees
//     is compared with the plan
//  6. start: ./final is given to the program's user, and init accepts the program
//  7. stream: package stream records the output
//  8. end: the program ends by itself, at a limit, or because somebody asks for it
//  9. collect: package stage lists the outputs, package outcome decides the cause of the
//     end, and package record has the result
//  10. remove: the removal of the container is certain when Run returns
//
// A result says what the program did; an error says that the sandbox failed or refused. The
// program gets no network, no capabilities, a read-only root, and bounded memory,
// processors, processes, time, disk and output. Whatever was opened is in [result.Enforced].
// Limits of the protection (bugs of the kernel and of the engine, side channels, a score
// that the program made up) are listed in docs/security.md.
package sandbox
