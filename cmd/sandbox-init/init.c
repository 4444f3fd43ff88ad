/* sandbox-init is PID 1 of every container. It reports what it sees, reads one job, runs
 * it, ends it and reports the end; the package comment of sandbox/engine/wire describes
 * the protocol on its standard streams.
 *
 * The program is hostile and has init's uid. So init is not dumpable (its memory,
 * descriptors and environment cannot be opened) and blocks every signal. It reads three
 * through a signalfd, and obeys SIGTERM and SIGUSR1 only if the kernel reports a sender
 * outside the container. Loops that a program can feed are bounded, so that init always
 * checks the deadline. */
#include "init.h"

__asm__(".global _start\n"
	"_start:\n"
#if defined(__x86_64__)
	"	xor %ebp, %ebp\n"
	"	mov %rsp, %rdi\n"
	"	and $-16, %rsp\n"
	"	call start\n");
#else
	"	mov x29, #0\n"
	"	mov x30, #0\n"
	"	mov x0, sp\n"
	"	bl start\n");
#endif

enum kind { EXITED = 1, SIGNALED, NOT_STARTED };
enum stop { NONE, DEADLINE, TERMINATED, KILLED, ORPHANED };

enum { REFUSES = 125, MOST_KILLING = 10, MOST_WAITING = 60 /* seconds */, MOST_FDS = 1 << 18 /* two per connection, plus a few */ };

static u64 report_bytes[MOST_REPORT / 8], input_bytes[MOST_INPUT / 8], counter_bytes[MOST_REPORT / 3 / 8];
static char **environment;
static struct job job, waiting_job;
static struct buffer counters_before = {.p = (u8 *)counter_bytes, .size = sizeof counter_bytes};

/* Pending output, per stream. Output to a stream without a reader is dropped. */
static struct output {
	int fd;
	const u8 *p;
	u64 n;
} outputs[] = {{1, NULL, 0}, {2, NULL, 0}};

/* The frame being read from the controller. */
static struct {
	bool_t open;
	bool_t complete; /* the frame was read, and its payload is still in use */
	u8 head[HEADER];
	u8 *payload;
	u64 have, length;
} input = {.open = 1};

static enum { BEFORE, RUNNING, OVER } phase;
static bool_t have_job, look, bye;
static u64 released_at; /* when the controller disconnected, or a signal released init */
static int signals = -1;
static int control = -1; /* where requests come from that no signal can carry */
static struct pollfd first_polls[8], *polls = first_polls;

static struct {
	i64 pid;
	int failures; /* the pipe of the second stage */
	int input;    /* the program's stdin, -1 once closed */
	u64 sent;     /* bytes of the frame's payload written to it */
	int status;
	struct rusage usage;
	u64 began, ended, began_wall, ended_wall;
	u64 deadline, soft_at, kill_at;
	u64 softened; /* when the soft signal was sent */
	enum stop stop;
	u64 give_up; /* when to stop waiting for killed processes to die */
	bool_t escalated, abandoned, orphaned;
	struct failure failure;
} program = {.failures = -1, .input = -1, .deadline = FOREVER, .soft_at = FOREVER, .kill_at = FOREVER, .give_up = FOREVER};

static bool_t children = 1; /* there may be children */
static bool_t unreaped;     /* there may be zombies */

static void write_output(struct output *o)
{
	/* A pipe that polls as writable takes 4096 bytes without blocking, whatever flags
	 * the program has set on it. */
	long n = sys3(write, o->fd, o->p, o->n < 4096 ? o->n : 4096);
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n < 0)
		n = (long)o->n;
	o->p += n;
	o->n -= (u64)n;
}

static void step(u64 until);

/* flush writes a frame while no program exists yet and init has nothing else to do. */
static void flush(const struct buffer *b)
{
	outputs[0].p = b->p;
	outputs[0].n = b->n;
	while (outputs[0].n)
		step(FOREVER);
}

static void __attribute__((noreturn)) refuse(enum refusal code, const char *text)
{
	struct buffer b = {.p = (u8 *)report_bytes, .size = sizeof report_bytes};

	frame_begin(&b, REFUSED);
	field32(&b, 1, code);
	field(&b, 2, text, strlen(text));
	frame_end(&b);
	input.open = 0; /* ignore everything that follows */
	flush(&b);
	leave(REFUSES);
}

/* next_frame starts reading the next frame, after the current one was handled. */
static void next_frame(void)
{
	program.sent = input.have = 0;
	input.complete = 0;
}

static void close_program_input(void)
{
	if (program.input >= 0)
		sys1(close, program.input);
	program.input = -1;
	/* Unread input would hold up the frames behind it, including BYE. */
	if (input.complete)
		next_frame();
}

static void released(void)
{
	if (!released_at)
		released_at = now();
}

/* set_deadline also sets the time of the soft signal, unless it was sent. */
static void set_deadline(u64 deadline)
{
	u64 lead = job.soft_lead * 1000000;

	program.deadline = deadline;
	if (lead && !program.softened)
		program.soft_at = deadline > lead ? deadline - lead : 0;
}

/* no_time_limits forgets all times at which the program would be stopped. */
static void no_time_limits(void)
{
	program.deadline = program.soft_at = program.kill_at = FOREVER;
}

/* lose handles a controller that has gone, and whose place another one may take. */
static void lose(void)
{
	u64 limit;

	if (phase == BEFORE)
		leave(REFUSES);
	if (phase == RUNNING) {
		limit = now() + job.orphan_limit * 1000000;
		program.abandoned = 1;
		if (job.orphan_limit && !program.stop && limit < program.deadline) {
			program.orphaned = 1;
			set_deadline(limit);
		}
	}
	close_program_input();
}

/* abandon handles a controller that has disconnected, or that sends garbage. */
static void abandon(void)
{
	lose();
	input.open = 0;
	released();
}

/* feed writes the payload of an INPUT frame to the program's stdin. init reads no further
 * frame before this one is done: a program that does not read blocks the controller. */
static void feed(void)
{
	while (program.input >= 0 && program.sent < input.length) {
		long n = sys3(write, program.input, input.payload + program.sent, input.length - program.sent);
		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n < 0)
			close_program_input();
		else
			program.sent += (u64)n;
	}
	next_frame();
}

static void open_frame(void)
{
	static const u8 magic[] = {0, 'E', 'B', 'X', VERSION};
	u8 type = input.head[5];
	bool_t known = !memcmp(input.head, magic, sizeof magic) && !input.head[6] && !input.head[7];

	input.length = get32(input.head + 8);
	if (phase != BEFORE) {
		input.payload = (u8 *)input_bytes;
		if (!known || !(type == INPUT ? input.length <= MOST_INPUT : type == BYE && !input.length))
			abandon();
		return;
	}
	if (known && type == LOOK && !input.length)
		return;
	if (!known || (type != JOB && (type != WAIT || waiter.state)))
		refuse(NOT_A_JOB, "not a job of version 1");
	if (input.length > MOST_JOB)
		refuse(TOO_LONG, "a job of more than 4 MiB");
	if (!(input.payload = map(input.length + !input.length)))
		refuse(TOO_LONG, "no memory for the job");
}

static void close_frame(void)
{
	enum refusal why;
	const char *problem;

	if (phase == BEFORE && input.head[5] == LOOK) {
		look = 1;
		input.have = 0;
		return;
	}
	if (phase == BEFORE) {
		have_job = input.head[5] == JOB;
		problem = parse_job(have_job ? &job : &waiting_job, input.head[5], input.payload, input.length, environment, &why);
		if (problem)
			refuse(why, problem);
		input.have = 0;
		if (have_job)
			return;
		waiter_start(&waiting_job);
		sys2(munmap, input.payload, input.length);
		return;
	}
	if (input.head[5] == BYE) {
		bye |= phase == OVER; /* an earlier one is ignored */
		input.have = 0;
		return;
	}
	if (!input.length)
		close_program_input();
	input.complete = 1;
	feed();
}

static void read_input(void)
{
	bool_t head = input.have < HEADER;
	u8 *to = head ? input.head + input.have : input.payload + (input.have - HEADER);
	long n = sys3(read, 0, to, head ? HEADER - input.have : HEADER + input.length - input.have);

	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n <= 0) {
		abandon();
		return;
	}
	input.have += (u64)n;
	if (head && input.have == HEADER)
		open_frame();
	if (input.open && input.have >= HEADER && input.have == HEADER + input.length)
		close_frame();
}

static void over(int status)
{
	phase = OVER;
	/* An expired deadline would make every later wait return at once. */
	no_time_limits();
	program.pid = 0;
	program.status = status;
	program.ended = now();
	program.ended_wall = clock(CLOCK_REALTIME);
	/* The proxy dies with the controller. An engine may report that death only after the program's end. */
	program.abandoned |= relay_lost();
	close_program_input();
}

/* reap reaps at most 64 processes: a program can create zombies as fast as init reaps
 * them, and init has to check the deadline in between. */
static void reap(void)
{
	static u8 info[128]; /* the kernel's siginfo_t: its first number is 0 without a process */
	struct rusage usage;
	int status;
	long pid = 0;

	if (phase == RUNNING && !sys5(waitid, P_PID, program.pid, info, WEXITED | WNOHANG | WNOWAIT, NULL) && get32(info))
		sched_look();
	for (int i = 0; i < 64 && (pid = sys4(wait4, -1, &status, WNOHANG | __WALL, &usage)) > 0; i++) {
		/* init is the tracer of a child that called PTRACE_TRACEME, so wait4 also
		 * reports its stops. A stop is not an end. */
		if ((status & 0xff) == 0x7f)
			continue;
		if (pid == waiter.pid) {
			waiter.pid = 0;
			if (waiter.line >= 0)
				waiter_read(); /* its last words */
			waiter_fail(ENDED);
			if (waiter.cause == ENDED)
				waiter.value = (u32)status;
		}
		if (pid != program.pid)
			continue;
		program.usage = usage;
		over(status);
	}
	children = pid != -ECHILD;
	unreaped = pid > 0;
}

static void kill_all(void)
{
	sys2(kill, -1, SIGKILL);
	if (program.give_up == FOREVER)
		program.give_up = now() + MOST_KILLING * SECOND;
}

/* A thread that a signal ends takes with it how long it has waited since the last tick. So the last
 * reading is made before the signal. */
static void signal_program(int signal)
{
	sched_look();
	sys2(kill, program.pid, signal);
}

static void kill_program(void)
{
	sched_look();
	kill_all();
}

/* stop ends the program: with SIGTERM and its grace period, or with SIGKILL at once. */
static void stop(enum stop why)
{
	if (phase == BEFORE)
		leave(128 + (why == KILLED ? SIGKILL : SIGTERM));
	if (phase == OVER) {
		released();
		return;
	}
	if (why == KILLED) {
		program.stop = KILLED;
		no_time_limits();
		kill_program();
		return;
	}
	if (program.stop)
		return;
	program.stop = why;
	no_time_limits();
	program.kill_at = now() + job.grace * 1000000;
	signal_program(SIGTERM);
}

static void read_signals(void)
{
	struct signalfd_siginfo s;

	/* At most three: new ones may arrive as fast as they are read. */
	for (int i = 0; i < 3 && sys3(read, signals, &s, sizeof s) == sizeof s; i++)
		/* Only a sender outside the PID namespace has PID 0. A program cannot forge
		 * that: the kernel refuses an si_code of 0 that a sender chose itself. */
		if (s.ssi_code == 0 && s.ssi_pid == 0 && s.ssi_signo != SIGCHLD)
			stop(s.ssi_signo == SIGTERM ? TERMINATED : KILLED);
}

/* read_control handles one request of the descriptor of -c. */
static void read_control(void)
{
	u8 request;
	long n = sys3(read, control, &request, 1);

	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n <= 0) {
		sys1(close, control);
		control = -1;
		return;
	}
	if (request == 'T')
		stop(TERMINATED);
	if (request == 'K')
		stop(KILLED);
	if (request == 'G')
		lose();
}

static void check_time(void)
{
	u64 t = now();

	if (phase != RUNNING)
		return;
	if (t >= program.deadline)
		stop(program.orphaned ? ORPHANED : DEADLINE);
	if (t >= program.soft_at) {
		program.soft_at = FOREVER;
		program.softened = t;
		signal_program(job.soft_signal);
	}
	if (t >= program.kill_at) {
		program.kill_at = FOREVER;
		program.escalated = 1;
		kill_program();
	}
	/* A main process that survives SIGKILL is reported as killed by it. */
	if (t >= program.give_up)
		over(SIGKILL);
}

/* wait_for is poll(2) implemented with select(2): poll fails if it gets more descriptors
 * than RLIMIT_NOFILE, which only guard_init keeps the program from setting to zero. */
static void wait_for(struct pollfd *p, u64 n, u64 until)
{
	static u64 readable[MOST_FDS / 64], writable[MOST_FDS / 64];
	u64 t = now(), end = 0;
	struct timespec_k timeout;

	for (u64 i = 0; i < n; i++)
		if (p[i].fd >= 0 && (u64)p[i].fd >= end)
			end = (u64)p[i].fd + 1;
	memset(readable, 0, (end + 63) / 64 * 8);
	memset(writable, 0, (end + 63) / 64 * 8);
	for (u64 i = 0; i < n; i++) {
		if (p[i].fd < 0)
			continue;
		if (p[i].events & POLLIN)
			readable[p[i].fd / 64] |= 1UL << p[i].fd % 64;
		if (p[i].events & POLLOUT)
			writable[p[i].fd / 64] |= 1UL << p[i].fd % 64;
	}
	t = until > t ? until - t : 0;
	timeout = (struct timespec_k){(i64)(t / SECOND), (i64)(t % SECOND)};
	if (sys5(pselect6, end, readable, writable, NULL, until == FOREVER ? NULL : &timeout) < 0)
		end = 0;
	for (u64 i = 0; i < n; i++) {
		u64 fd = (u64)p[i].fd;
		p[i].revents = 0;
		if (p[i].fd < 0 || fd >= end)
			continue;
		if (readable[fd / 64] >> fd % 64 & 1)
			p[i].revents |= POLLIN;
		if (writable[fd / 64] >> fd % 64 & 1)
			p[i].revents |= POLLOUT;
	}
}

/* step waits for the next event, at most until the given time, and handles it. */
static void step(u64 until)
{
	u64 n = sizeof first_polls / sizeof *first_polls;

	if (until > program.deadline)
		until = program.deadline;
	if (until > program.soft_at)
		until = program.soft_at;
	if (until > program.kill_at)
		until = program.kill_at;
	if (phase == RUNNING && until > program.give_up)
		until = program.give_up;
	if (phase == RUNNING && until > sched.tick)
		until = sched.tick;
	/* A descriptor that was hung up is always ready, so descriptors that init does not
	 * wait for are left out. */
	/* Before the program runs, init finishes its own frame before it reads another one,
	 * and leaves the frames behind the job for the program. */
	bool_t reads = input.open && !input.complete && !(phase == BEFORE && (outputs[0].n || look || have_job)) && waiter.state != ASKED;
	polls[0] = (struct pollfd){reads ? 0 : -1, POLLIN, 0};
	polls[1] = (struct pollfd){signals, POLLIN, 0};
	polls[2] = (struct pollfd){input.complete ? program.input : -1, POLLOUT, 0};
	for (int i = 0; i < 2; i++)
		polls[3 + i] = (struct pollfd){outputs[i].n ? outputs[i].fd : -1, POLLOUT, 0};
	polls[5] = (struct pollfd){waiter.line, POLLIN, 0};
	polls[6] = (struct pollfd){waiter.output, POLLIN, 0};
	polls[7] = (struct pollfd){control, POLLIN, 0};
	n += (u64)relay_watch(polls + n, &until);

	wait_for(polls, n, unreaped ? 0 : until);
	if (phase == RUNNING) /* before anything is done about a time that is over */
		sched_tick(now());
	if (polls[1].revents)
		read_signals();
	if (polls[7].revents)
		read_control();
	if (polls[5].revents)
		waiter_read();
	if (polls[6].revents)
		waiter_drain();
	reap();
	for (int i = 0; i < 2; i++)
		if (polls[3 + i].revents)
			write_output(&outputs[i]);
	if (polls[0].revents)
		read_input();
	if (polls[2].revents)
		feed();
	relay_step(polls + sizeof first_polls / sizeof *first_polls);
	check_time();
	if (now() >= waiter.until)
		waiter_fail(waiter.state == STARTING ? NOT_READY : NOT_HANDED);
}

/* discard_waiter kills the waiting process, and everything that it has started. */
static void discard_waiter(void)
{
	u64 give_up = now() + MOST_KILLING * SECOND;

	waiter_fail(UNWANTED);
	sys2(kill, -1, SIGKILL);
	reap();
	while (children && now() < give_up) {
		sys2(kill, -1, SIGKILL);
		step(now() + SECOND / 50);
	}
}

/* begin notes the time at which the program begins. */
static void begin(void)
{
	sched_begin(&job);
	program.began = now();
	program.began_wall = clock(CLOCK_REALTIME);
	if (job.deadline)
		put_time(job.deadline, program.began_wall / 1000000 + job.timeout);
}

static void run(i64 pid, int its_input)
{
	phase = RUNNING;
	program.pid = pid;
	program.input = its_input;
	if (job.timeout)
		set_deadline(program.began + job.timeout * 1000000);
}

/* hand_over makes the waiting process the program, and reports whether that worked. If not,
 * it is as if there had been none. */
static bool_t hand_over(void)
{
	if (!waiter.state)
		return 0;
	put_counters(&counters_before, 15);
	if (waiter.state == IDLE && job.flags & TO_WAITER) {
		begin();
		run(waiter.pid, waiter.input);
		waiter.input = -1;
		waiter_ask(&job);
		while (phase == RUNNING && waiter.state == ASKED)
			step(waiter.until);
		if (waiter.state == TAKEN || program.stop)
			return 1; /* a program that was stopped is not started again */
		close_program_input();
		phase = BEFORE;
		program.pid = 0;
		program.softened = 0;
		no_time_limits();
	}
	discard_waiter();
	counters_before.n = 0;
	put_counters(&counters_before, 15); /* what it used since it was asked is not the program's */
	return 0;
}

/* launch starts the program. A failure before the fork is recorded like one in the second
 * stage. */
static void launch(void)
{
	int failures[2], in[2] = {-1, -1};
	enum stage stage = ST_RELAY;
	u32 detail = 0;
	long r = job.relay_path ? relay_open(&job) : 0;

	if (r >= 0 && relay_polls()) {
		polls = map(sizeof first_polls + relay_polls() * sizeof *polls);
		r = polls ? 0 : -ENOMEM;
	}
	if (r >= 0) {
		stage = ST_ALIAS;
		r = scratch_open(&job, &detail);
	}
	if (r >= 0 && hand_over()) {
		sys2(munmap, input.payload, input.length);
		return;
	}
	if (r >= 0) {
		stage = ST_STDIN;
		r = sys2(pipe2, failures, O_CLOEXEC | O_NONBLOCK);
	}
	if (r >= 0 && job.flags & WITH_STDIN) {
		r = sys2(pipe2, in, O_CLOEXEC);
		/* Only init's end: a program does not expect EAGAIN on its stdin. */
		sys3(fcntl, in[1], F_SETFL, O_NONBLOCK);
	}
	use_ids(OF_PROGRAM);
	begin();
	if (r >= 0) {
		stage = ST_FORK;
		r = sys5(clone, SIGCHLD, 0, 0, 0, 0);
	}
	if (r < 0) {
		program.failure = (struct failure){stage, (u32)-r, detail};
		over(0);
		return;
	}
	if (!r)
		second_stage(&job, failures[1], in[0], NULL);
	run(r, in[1]);
	program.failures = failures[0];
	sys1(close, failures[1]);
	if (in[0] >= 0)
		sys1(close, in[0]);
	sys2(munmap, input.payload, input.length);
}

/* end_all kills all remaining processes, and returns how many of them did not die. */
static u32 end_all(void)
{
	for (;;) {
		kill_all();
		reap();
		if (!children)
			return 0;
		if (now() >= program.give_up)
			return count_processes();
		u64 soon = now() + SECOND / 50;
		step(soon < program.give_up ? soon : program.give_up);
	}
}

static enum kind kind(u32 *value)
{
	if (program.failures >= 0)
		sys3(read, program.failures, &program.failure, sizeof program.failure);
	if (program.failure.stage) {
		*value = program.failure.error;
		return NOT_STARTED;
	}
	*value = (u32)program.status & 0x7f;
	if (*value)
		return SIGNALED;
	*value = (u32)program.status >> 8 & 0xff;
	return EXITED;
}

static u64 microseconds(struct __kernel_old_timeval t)
{
	return (u64)t.tv_sec * 1000000 + (u64)t.tv_usec;
}

static void put_report(struct buffer *b, enum kind how, u32 value, u32 left)
{
	frame_begin(b, REPORT);
	field32(b, 1, how);
	field32(b, 2, value);
	if (how == NOT_STARTED)
		field32(b, 3, program.failure.stage);
	u64 wall = program.ended - program.began;
	field(b, 4, &wall, sizeof wall);
	u64 usage[] = {microseconds(program.usage.ru_utime), microseconds(program.usage.ru_stime), (u64)program.usage.ru_maxrss};
	u64 before = waiter.state == TAKEN ? waiter.used / 1000 : 0;
	for (int i = 0; i < 2; i++) {
		u64 part = before < usage[i] ? before : usage[i];
		usage[i] -= part;
		before -= part;
	}
	field(b, 5, usage, sizeof usage);
	field32(b, 6, program.stop);
	field32(b, 7, program.escalated);
	field32(b, 8, left);
	put_counters(b, 9);
	u64 when[] = {program.began_wall, program.ended_wall};
	field(b, 10, when, sizeof when);
	field32(b, 11, program.abandoned);
	if (program.failure.stage == ST_RLIMIT)
		field32(b, 12, program.failure.detail);
	if (program.softened) {
		u64 after = program.softened - program.began;
		field(b, 13, &after, sizeof after);
	}
	if (waiter.state) {
		u64 at = field_begin(b, 14);
		put32(b, waiter.cause);
		put32(b, waiter.value);
		put32(b, waiter.error);
		put(b, waiter.reason, waiter.length);
		field_end(b, at);
	}
	if (sched.known)
		field(b, 18, &sched.ran, 4 * sizeof sched.ran);
	if (sched.gap)
		field(b, 19, &sched.gap, sizeof sched.gap);
	if (how != NOT_STARTED)
		put_scratch(b);
	put(b, counters_before.p, counters_before.n);
	frame_end(b);
}

/* report ends both streams with the nonce. They are in the state in which the program left
 * them; nothing else writes to them any more. */
static void report(enum kind how, u32 value, u32 left)
{
	static const u8 line_end[] = {'\n'}; /* see end_line */
	struct buffer b = {.p = (u8 *)report_bytes, .size = sizeof report_bytes};
	u64 began = now(), limit, second;

	put(&b, job.nonce, NONCE);
	put_report(&b, how, value, left);
	put(&b, line_end, sizeof line_end);
	second = b.n;
	put(&b, job.nonce, NONCE);
	put(&b, line_end, sizeof line_end);
	outputs[0] = (struct output){1, b.p, second};
	outputs[1] = (struct output){2, b.p + second, b.n - second};
	for (int i = 0; i < 2; i++)
		sys3(fcntl, outputs[i].fd, F_SETFL, O_NONBLOCK);
	while (outputs[0].n || outputs[1].n) {
		limit = !released_at ? FOREVER : (released_at > began ? released_at : began) + MOST_WAITING * SECOND;
		if (now() >= limit)
			return;
		step(limit);
	}
}

static int exit_code(enum kind how, u32 value)
{
	if (program.stop == TERMINATED)
		return 128 + SIGTERM;
	if (program.stop == KILLED)
		return 128 + SIGKILL;
	switch (how) {
	case EXITED:
		return (int)value;
	case SIGNALED:
		return 128 + (int)value;
	default:
		return value == ENOENT || value == ENOTDIR ? 127 : 126;
	}
}

static void __attribute__((noreturn)) complain(const char *text)
{
	sys3(write, 2, text, strlen(text));
	leave(REFUSES);
}

static long own_directory;

static void close_inherited(u32 fd)
{
	if (fd > 2 && fd != own_directory && (int)fd != control)
		sys1(close, fd);
}

/* occupy starts idle threads. They use up the part of the container's process limit that
 * the program may not have: runtimes cannot start a container reliably under a very small
 * limit. Threads of init cannot be killed individually. */
static void occupy(int places)
{
	for (; places > 0; places--) {
		long number = new_thread(THREAD_OF_INIT, PAUSE);
		if (number < 0)
			complain("sandbox-init: no threads\n");
		last_of_init = (u32)number; /* IDs ascend */
	}
}

/* prepare turns the process that the engine started into a clean PID 1. */
static void prepare(char **arguments)
{
	static const u64 all = ~0UL;
	static const u64 ours = 1UL << (SIGCHLD - 1) | 1UL << (SIGTERM - 1) | 1UL << (SIGUSR1 - 1);
	static const u64 by_default[4]; /* the kernel's struct sigaction */

	/* The program can execute this file too. */
	if (sys0(getpid) != 1)
		complain("sandbox-init: not process 1 of a container\n");
	for (char **a = arguments; *a; a += 2)
		if (a[0][0] != '-' || (a[0][1] != 's' && a[0][1] != 'w' && a[0][1] != 't' && a[0][1] != 'c') || a[0][2] || !a[1])
			complain("usage: sandbox-init [-t THREADS] [-c DESCRIPTOR] [-w WITNESS] [-s PATH]...\n");
	for (char **a = arguments; *a; a += 2)
		if (a[0][1] == 'c')
			control = a[1][0] - '0';
	if (control >= 0 && (control < 3 || sys3(fcntl, control, F_SETFD, FD_CLOEXEC) < 0))
		complain("sandbox-init: the descriptor of -c is not open\n");
	/* Ignored signals stay ignored across execve, and children leave no exit status
	 * while SIGCHLD is ignored. */
	for (long n = 1; n <= 64; n++)
		sys4(rt_sigaction, n, by_default, NULL, 8);
	if ((own_directory = open_at("/proc/self/fd", O_RDONLY | O_DIRECTORY)) < 0)
		complain("sandbox-init: no /proc\n");
	each_number(own_directory, close_inherited);
	sys1(close, own_directory);
	sys4(rt_sigprocmask, SIG_SETMASK, &all, NULL, 8);
	signals = (int)sys4(signalfd4, -1, &ours, 8, O_CLOEXEC | O_NONBLOCK);
	if (signals < 0 || sys5(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		complain("sandbox-init: the kernel refuses signalfd or PR_SET_DUMPABLE\n");
	for (char **a = arguments; *a; a += 2)
		if (a[0][1] == 't')
			occupy(a[1][0] - '0');
}

static void greet(char **arguments)
{
	struct buffer b = {.p = map(MOST_READY), .size = MOST_READY};

	if (!b.p)
		complain("sandbox-init: no memory\n");
	put_ready(&b, arguments);
	if (b.full)
		complain("sandbox-init: too much to say\n");
	flush(&b);
	sys2(munmap, b.p, MOST_READY);
}

/* answer_wait says that the waiting process is ready, or has failed. */
static void answer_wait(void)
{
	struct buffer b = {.p = (u8 *)report_bytes, .size = sizeof report_bytes};

	if (waiter.state == FAILED)
		discard_waiter();
	frame_begin(&b, WAITING);
	put_counters(&b, 1);
	end_line(&b, 2);
	frame_end(&b);
	flush(&b);
}

/* await_job answers everything that comes before the job. */
static void await_job(char **arguments)
{
	bool_t answered = 0;

	while (!have_job || waiter.state == STARTING) {
		if (!look) /* discard_waiter may have read one */
			step(waiter.until);
		if (look)
			greet(arguments);
		look = 0;
		if (waiter.state > STARTING && !answered) {
			answered = 1;
			answer_wait();
		}
	}
}

/* accept_job answers the job and waits until the answer was read: a program can open its
 * own stdout for reading, and could steal the answer. If nobody has read it after
 * MOST_WAITING seconds, the controller no longer waits for it. */
static void accept_job(void)
{
	struct buffer b = {.p = (u8 *)report_bytes, .size = sizeof report_bytes};
	u64 give_up = now() + MOST_WAITING * SECOND;
	int unread;

	frame_begin(&b, ACCEPTED);
	field(&b, 1, job.nonce, NONCE_SHOWN);
	end_line(&b, 2);
	frame_end(&b);
	flush(&b);
	while (!sys3(ioctl, 1, FIONREAD, &unread) && unread > 0) {
		if (now() >= give_up)
			leave(REFUSES);
		step(now() + SECOND / 20000);
	}
}

void __attribute__((noreturn, used)) start(long *stack)
{
	char **arguments = (char **)(stack + 2);
	enum kind how;
	u32 left, value;

	environment = (char **)(stack + 1 + stack[0] + 1);
	if (stack[0] < 1)
		leave(REFUSES);
	prepare(arguments);
	greet(arguments);
	use_ids(OF_WARM_UP); /* while the controller reads the greeting */
	open_counters();
	sched_open();
	await_job(arguments);
	accept_job();
	launch();
	while (phase == RUNNING)
		step(FOREVER);
	left = end_all();
	relay_close();
	how = kind(&value);
	report(how, value, left);
	while (!bye && !released_at)
		step(FOREVER);
	leave(exit_code(how, value));
}
