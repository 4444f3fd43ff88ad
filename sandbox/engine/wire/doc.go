// Package wire implements the protocol between a controller and sandbox-init, the PID 1 of
// every container, and embeds init's binaries (cmd/sandbox-init has the sources).
//
// # The conversation
//
// The protocol uses the container's own standard streams, so it works on every engine and
// through every proxy:
//
//  1. READY, on stdout, before any program exists: what init sees of its container.
//     LOOK, on stdin, asks for it once more, as often as the controller likes.
//     WAIT, on stdin, at most once, starts a process that waits for the job: see [Wait]. Init
//     answers with WAITING when the process is ready or has failed.
//  2. JOB, on stdin, after READY was read: the program, its limits, and a nonce. Init answers
//     with ACCEPTED or REFUSED. The program starts once ACCEPTED has left init's pipe, because
//     it could read the answer from its own stdout; INPUT frames are its stdin.
//  3. Stdout and stderr are the program's, unmodified. When its main process has ended and
//     every other process is dead, init ends each stream with the nonce, followed by REPORT on
//     stdout. The two streams are not ordered relative to each other: a run is over once both
//     marks and the report were read.
//  4. BYE, on stdin, releases init; so does the end of stdin.
//
// The last byte of READY, WAITING and ACCEPTED, and of each stream, is a newline, because an engine's log
// keeps whole lines.
//
// [Receiver] is the controller's side of everything that arrives. [Job.Encode] and
// [InputWriter] produce JOB and INPUT; a controller closes stdin to release init.
//
// The program never sees the nonce. It is held by a process that nobody can trace, and arrives
// on a stream that the program does not have. ACCEPTED repeats only its first 8 bytes, because
// a program can open its own stdout for reading and find unread bytes there. So the program
// can forge neither the end of a stream nor a report.
//
// # Frames
//
// All integers are little-endian. A frame is a header of 12 bytes (magic "\0EBX", version
// 1, type, two zero bytes, length of the payload in 4 bytes) and a payload. The payload of
// INPUT is raw bytes, and an empty one is the end of the input. All other payloads consist of
// fields (tag in 2 bytes, two zero bytes, length in 4, value).
//
//	READY     1  at most 1 MiB   build id 1, texts of /proc/self/status 2, limits 3 and mountinfo 4
//	                             (512 KiB), of /proc/net/dev 5, boot id 6, machine 7; repeated
//	                             "path\0content" of a cgroup file 8; repeated stat 9: errno, mode
//	                             (4 bytes each), device, inode, seconds of ctime (8 each),
//	                             nanoseconds, zero (4 each), path; witness errno 10; newline 11
//	ACCEPTED  2                  beginning of the nonce 1; newline 2
//	REPORT    3  at most 128 KiB kind 1, value 2, stage 3, wall ns 4, rusage 5 (user µs, system µs,
//	                             KiB, 8 bytes each), stop reason 6, escalated 7, processes left 8,
//	                             repeated "path\0content" of a counter 9, start and end in ns 10,
//	                             controller gone 11, number of the limit that failed 12, ns from the
//	                             start to the soft signal 13 (8 bytes; only if it was sent), after
//	                             a WAIT: the waiting process 14 (cause, wait status or stage, errno,
//	                             4 bytes each, its text), repeated counter 15 of before the job,
//	                             what was left in the scratch directory 16 (files, bytes, 8 bytes
//	                             each, complete, zero, 4 each), repeated path 17 of such a file, ns
//	                             that threads ran, waited and lacked, and could have used 18 (8
//	                             bytes each; only if the kernel counts them), ns in which nothing ran 19 (only if any)
//	REFUSED   4                  reason code 1, text 2
//	WAITING   5  at most 128 KiB repeated counter 1, newline 2
//	JOB      16  at most 4 MiB   nonce 1, repeated argument 2, repeated NAME=value 3, directory 4,
//	                             timeout ms 5, grace ms 6 (8 bytes each), repeated limit 7 (resource,
//	                             zero, soft, hard), OOM score 8, flags 9 (1 no fork, 2 stdin, 4 the waiting
//	                             process becomes the program), relay
//	                             10 (port, connections, 4 zero bytes, path of the socket), soft
//	                             signal 11 (ms before the deadline, 8 bytes; signal, zero, 4 each),
//	                             orphan limit ms 12 (8 bytes), name of the deadline variable 13,
//	                             scratch directory 15, repeated "path\0target" of a link 16,
//	                             thousandths of processors 17 (8 bytes)
//	INPUT    17  at most 64 KiB
//	BYE      18  empty
//	WAIT     19  at most 4 MiB   the fields 2, 3, 4, 5 (until it must be ready), 8 and 9 of a JOB,
//	                             content of its file 14
//	LOOK     20  empty
//
// Init refuses a JOB with a field that is unknown, missing, duplicated or of a wrong length,
// and any other frame in its place. It then exits with 125, and nothing of the program has run.
// If stdin ends before the job, or nobody reads the answer to it for 60 seconds, init exits
// with 125 silently. After the job, bytes that are not a frame mean the same as the end of
// stdin: the controller is gone.
//
// # The life of init
//
// Init is started as `init [-t THREADS] [-c DESCRIPTOR] [-w WITNESS] [-s PATH]...`. It starts that
// many idle threads before READY, see [InitTasks]. It opens and closes the file WITNESS before READY,
// so that an observer outside can see it. READY has the result of lstat(2) for each PATH.
//
// DESCRIPTOR, a digit from 3, carries requests where an engine cannot send signals, one byte each:
// [RequestStop], [RequestKill] and [RequestGone]. It is a channel of its own because input that the
// program does not read holds up the frames behind it. The program does not inherit it.
//
// The program's environment is init's own, with the job's variables on top. A program without
// a slash is looked up like execvpe(3) does, and ENOEXEC falls back to /bin/sh.
//
// With a deadline variable, init adds it to the program's environment when it starts the
// program. Its value is the deadline in seconds since 1970 with three decimals, by the wall
// clock; the deadline itself is kept by a monotonic clock. A soft signal is sent to the main
// process once, that long before the deadline, and stops nothing: a program that goes on runs
// into its deadline. If the controller is gone while the program runs, at most the orphan limit
// remains, and the soft signal comes that long before the new deadline.
//
// The main process is stopped by its deadline, or by a signal to init from outside the
// container. SIGTERM makes init send SIGTERM to it and wait for the job's grace period; SIGUSR1
// kills it at once. Before a job these signals end init, with 143 and 137. A signal counts if
// the kernel reports that its sender has no PID in the container, which a program cannot forge.
// There is one exception: when the user's quota of pending signals is used up, the kernel
// drops the sender of a tgkill(2), and init takes the signal for one from outside. So a
// program can request its own end; an engine that did not send the signal knows better than
// the report's stop reason.
//
// A program that keeps sending SIGTERM to init can hide one from outside, because the kernel
// keeps only one pending signal of a kind. It cannot hide its deadline, or the engine's SIGKILL.
//
// After the main process has ended, init kills everything else, for at most 10 seconds. While
// stdin is open, init waits without a limit until its report is read and BYE arrives; without a
// controller it waits 60 seconds. It exits with the program's exit code, 128 plus the signal
// number, 127 or 126 if the program was not started, or 143 or 137 if it was stopped from
// outside.
package wire
