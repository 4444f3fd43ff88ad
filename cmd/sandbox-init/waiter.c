/* A process that waits for the job: an interpreter that has imported modules, and becomes the
 * program when its job arrives. It has the filters and the user of a program, but
 * not its streams: stdout and stderr are discarded until init hands them over. It is not
 * trusted more than a program. */
#include "init.h"

#include <linux/memfd.h>

enum {
	UNIX = 1,
	SEQPACKET = 5,
	SOCKET_LEVEL = 1,
	SCM_RIGHTS = 1,
	MOST_ANSWER = 10, /* seconds */
	CPU_CLOCK_OF_PROCESS = 2,
};

/* The kernel's struct user_msghdr and struct cmsghdr are not in exported headers. */
struct vector {
	const void *p;
	u64 n;
};

struct message {
	void *name;
	i32 name_length;
	struct vector *parts;
	u64 part_count;
	void *control;
	u64 control_size;
	u32 flags;
};

struct descriptors {
	u64 size;
	i32 level, type;
	i32 fd[3];
};

struct waiter waiter = {.line = -1, .output = -1, .input = -1, .until = FOREVER};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		sys1(close, *fd);
	*fd = -1;
}

/* waiter_close closes the line to the process. Its stdin stays open. */
static void waiter_close(void)
{
	close_fd(&waiter.line);
	close_fd(&waiter.output);
	waiter.until = FOREVER;
}

/* waiter_fail notes why the process cannot be the program; only the first reason counts. */
void waiter_fail(enum waiter_cause cause)
{
	if (waiter.state == FAILED || waiter.state == TAKEN)
		return;
	waiter.state = FAILED;
	waiter.cause = cause;
	waiter_close();
	close_fd(&waiter.input);
}

static long last_id;

/* use_ids uses up process IDs until one with this last digit, in hexadecimal, is next. The engine's
 * process has used as many as it had threads, 5 to 9, and programs print their own: so it is the same
 * in each run. A thread that ends at once uses up an ID. It has ended before the next one starts. */
void use_ids(u32 next)
{
	for (int tries = 1000; tries && last_id >= 0 && ((u32)last_id + 1) % 16 != next; tries--) {
		long id = new_thread(THREAD_OF_INIT | CLONE_VFORK, __NR_exit);
		if (id != -EAGAIN) /* the process limit may still count the last thread */
			last_id = id;
	}
}

static bool_t write_all(long fd, const void *p, u64 n)
{
	while (n) {
		long done = sys3(write, fd, p, n);
		if (done <= 0)
			return 0;
		p = (const u8 *)p + done;
		n -= (u64)done;
	}
	return 1;
}

void waiter_start(struct job *job)
{
	int line[2] = {-1, -1}, output[2] = {-1, -1}, input[2] = {-1, -1};
	long file = sys2(memfd_create, "", MFD_CLOEXEC), r = file, pid;

	if (r >= 0 && !write_all(file, job->file, job->file_size))
		r = -ENOMEM;
	if (r >= 0)
		r = sys4(socketpair, UNIX, SEQPACKET | O_CLOEXEC, 0, line);
	if (r >= 0)
		r = sys2(pipe2, output, O_CLOEXEC);
	if (r >= 0 && job->flags & WITH_STDIN)
		r = sys2(pipe2, input, O_CLOEXEC);
	if (job->file_size) /* else it is a warm-up */
		use_ids(OF_PROGRAM);
	pid = r < 0 ? r : sys5(clone, SIGCHLD, 0, 0, 0, 0);
	if (pid > 0)
		last_id = pid;
	if (!pid) {
		struct waiter_fds fds = {line[1], (int)file, output[1]};
		second_stage(job, line[1], input[0], &fds);
	}
	close_fd(&line[1]);
	close_fd(&output[1]);
	close_fd(&input[0]);
	if (file >= 0)
		sys1(close, file);
	waiter.state = STARTING;
	waiter.pid = pid > 0 ? pid : 0;
	waiter.line = line[0];
	waiter.output = output[0];
	waiter.input = input[1];
	if (job->timeout)
		waiter.until = now() + job->timeout * 1000000;
	/* Only init's ends: nobody expects EAGAIN on its own. */
	sys3(fcntl, waiter.line, F_SETFL, O_NONBLOCK);
	sys3(fcntl, waiter.output, F_SETFL, O_NONBLOCK);
	sys3(fcntl, waiter.input, F_SETFL, O_NONBLOCK);
	if (pid < 0) {
		waiter.value = ST_FORK;
		waiter.error = (u32)-pid;
		waiter_fail(NOT_EXECUTED);
	}
}

/* waiter_read reads an answer of the process: one byte that says what, and a text. */
void waiter_read(void)
{
	static u8 answer[1 + MOST_REASON];
	struct failure failure;
	long n = sys3(read, waiter.line, answer, sizeof answer);

	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n == 1 && answer[0] == 'R' && waiter.state == STARTING) {
		waiter.state = IDLE;
		waiter.until = FOREVER;
	} else if (n == 1 && answer[0] == 'T' && waiter.state == ASKED) {
		waiter.state = TAKEN;
		waiter.cause = RAN;
		waiter_close();
	} else if (n == sizeof failure && answer[0] < ' ') {
		memcpy(&failure, answer, sizeof failure);
		waiter.value = failure.stage;
		waiter.error = failure.error;
		waiter_fail(NOT_EXECUTED);
	} else if (n > 0) {
		waiter.length = (u64)n - 1;
		memcpy(waiter.reason, answer + 1, waiter.length);
		waiter_fail(SAID_NO);
	} else {
		waiter_fail(ENDED);
	}
}

/* waiter_drain discards output of the process. */
void waiter_drain(void)
{
	static u8 scratch[4096];
	long n = sys3(read, waiter.output, scratch, sizeof scratch);

	if (n != -EAGAIN && n != -EINTR && n <= 0)
		close_fd(&waiter.output);
}

static bool_t put_strings(long fd, char **strings)
{
	for (; *strings; strings++)
		if (!write_all(fd, *strings, strlen(*strings) + 1))
			return 0;
	return 1;
}

/* waiter_ask hands the job over: its arguments, its environment, stdout and stderr. */
void waiter_ask(const struct job *job)
{
	struct vector part = {"J", 1};
	struct descriptors passed = {sizeof(u64) + 2 * sizeof(i32) + 3 * sizeof(i32), SOCKET_LEVEL, SCM_RIGHTS, {-1, 1, 2}};
	struct message message = {.parts = &part, .part_count = 1, .control = &passed, .control_size = sizeof passed};
	long text = sys2(memfd_create, "", MFD_CLOEXEC);
	bool_t ok = text >= 0, there = 1;
	u32 count = 0;

	while (job->argv[count])
		count++;
	/* The bits above the clock's number are the process ID, inverted. */
	waiter.used = clock((int)(~(u32)waiter.pid << 3 | CPU_CLOCK_OF_PROCESS));
	ok = ok && write_all(text, &count, sizeof count) && put_strings(text, job->argv) && put_strings(text, job->envp);
	passed.fd[0] = (i32)text;
	for (u64 i = 0; ok && i < job->limit_count; i++)
		there &= sys4(prlimit64, waiter.pid, job->limits[i].resource, &job->limits[i].soft, NULL) >= 0;
	there = ok && there && sys3(sendmsg, waiter.line, &message, 0) == 1;
	if (text >= 0)
		sys1(close, text);
	waiter.state = ASKED;
	waiter.until = now() + MOST_ANSWER * SECOND;
	if (!there)
		waiter_fail(ok ? ENDED : NOT_HANDED);
}
