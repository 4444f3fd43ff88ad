// Package wire is the protocol between a controller and sandbox-init, the process 1 of
// every container, and holds init's binaries (cmd/sandbox-init has the sources).
//
// # The conversation
//
// It goes over the container's own standard streams, so it works on every engine and
// through every proxy:
//
//  1. READY, on stdout, before any program exists: what init sees of its container.
//  2. JOB, on stdin, after READY was read: the program, its limits, and a nonce. ACCEPTED
//     answers, or REFUSED. The program starts once ACCEPTED has left init's pipe, because
//     it could take the answer out of its own stdout; INPUT frames are its stdin.
//  3. Stdout and stderr are the program's, untouched. When its main process has ended and
//     every other process is dead, each stream ends with the nonce, and REPORT follows on
//     stdout. A newline is the last byte of both, because an engine's log keeps whole lines.
//     The two streams are not ordered against each other: a run is over when both marks and
//     the report were read.
//  4. BYE, on stdin, lets init go; so does the end of stdin.
//
// [Receiver] is the controller's side of all that arrives; [Job.Encode], [InputWriter] and
// [ByeFrame] make what is sent.
//
// The program never sees the nonce. It lies in a process that nobody can trace and comes
// on a stream that the program does not have; ACCEPTED repeats the first 8 bytes only,
// because a program can open its own stdout for reading and find there what nobody has
// read yet. So it can neither end a stream nor forge a report.
//
// # Frames
//
// All integers are little-endian. A frame is a header of 12 bytes (magic "\0EBX", version
// 1, type, two zero bytes, length of the payload in 4 bytes) and a payload. That of INPUT is
// raw bytes, none of them meaning the end of the input; all others consist of fields (tag in
// 2 bytes, two zero bytes, length in 4, value).
//
//	READY     1  at most 1 MiB   build id 1, texts of /proc/self/status 2, limits 3 and mountinfo 4
//	                             (512 KiB), of /proc/net/dev 5, boot id 6, machine 7; repeated
//	                             "path\0content" of a cgroup file 8; repeated stat 9: errno, mode
//	                             (4 bytes each), device, inode, seconds of ctime (8 each),
//	                             nanoseconds, zero (4 each), path; witness errno 10
//	ACCEPTED  2                  beginning of the nonce 1
//	REPORT    3  at most 64 KiB  kind 1, value 2, stage 3, wall ns 4, rusage 5 (user µs, system µs,
//	                             KiB, 8 bytes each), stop reason 6, escalated 7, processes left 8,
//	                             repeated "path\0content" of a counter 9, start and end in ns 10,
//	                             controller gone 11, number of the limit that failed 12
//	REFUSED   4                  reason code 1, text 2
//	JOB      16  at most 4 MiB   nonce 1, repeated argument 2, repeated NAME=value 3, directory 4,
//	                             timeout ms 5, grace ms 6 (8 bytes each), repeated limit 7 (resource,
//	                             zero, soft, hard), OOM score 8, flags 9 (1 no fork, 2 stdin), relay
//	                             10 (port, connections, 4 zero bytes, path of the socket)
//	INPUT    17  at most 64 KiB
//	BYE      18  empty
//
// Init refuses a JOB with an unknown field, one that is missing, doubled or of a wrong length,
// and any other frame in its place, and exits with 125: nothing of the program ran. If stdin
// ends before the job, or nobody reads the answer to it for 60 seconds, it exits with 125
// without a word. After the job, what is no frame means the same as the end of stdin: the
// controller is gone.
//
// # The life of init
//
// It is started as `init [-t THREADS] [-w WITNESS] [-s PATH]...`. It makes as many idle threads
// before READY, see [InitTasks]; the witness is a file to open and close before READY, which an
// observer outside sees; each path is looked at for READY.
//
// The environment of the program is init's own, with the job's on top. A program without a
// slash is looked up as execvpe(3) does, and ENOEXEC leads to /bin/sh.
//
// The main process is stopped by its deadline, or by a signal from outside of the container:
// SIGTERM gives it the job's grace after a SIGTERM of its own, SIGUSR1 none. Before a job they
// end init, with 143 and 137. A signal counts when the kernel says that its sender has no
// number in here, which no program can forge; with one exception: when the user's quota of
// pending signals is used up, the kernel loses the sender of a tgkill(2), and init takes it for
// one from outside. So a program can ask for its own end; an engine that did not send the
// signal knows better than the report's stop reason.
//
// A program that sends SIGTERM to init all the time can hide one from outside, because the
// kernel keeps one of a kind. It cannot hide its deadline, or the engine's SIGKILL.
//
// After the end of the main process everything else is killed, for at most 10 seconds. While
// stdin is open init waits for as long as it takes that its report is read, and for BYE;
// without a controller 60 seconds. It exits with the program's code, 128 and the signal, 127 or
// 126 if there is no program, 143 and 137 when it was stopped from outside.
package wire
