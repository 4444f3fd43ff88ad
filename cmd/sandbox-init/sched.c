/* How much of the processors the program gets. Each second and at the end, init reads how long every
 * thread of the container has run, and how long it has waited for a processor while it could have
 * run (schedstat of proc(5)). A thread that ends takes less than a second of this with it; of the
 * main process, the last reading is made before it is reaped.
 *
 * The same tick shows a frozen container: init comes late, and has not waited for a processor. */
#include "init.h"

/* MOST_LOOKS bounds the threads that are read at a tick. A tick of as many takes a few milliseconds. */
enum { MOST_LOOKS = 1024, SLOTS = 4096, TICK = SECOND };

/* The last reading of a thread, at the place of its ID. A place is free if its thread was not seen in
 * this round and the one before. */
static struct {
	u64 ran, waited;
	u32 id, round;
} threads[SLOTS];

static u32 processes[MOST_LOOKS], process_count, looks, round = 2;
static long proc = -1, tasks = -1, own = -1;
static u64 ran, waited; /* since the last tick */
static u64 last_tick, own_waited, own_faults;
static struct job *its_job;
struct sched sched = {.tick = FOREVER};

/* put_number writes a number and a NUL, and returns the place of the NUL. */
static char *put_number(char *to, u32 n)
{
	char digits[12], *p = digits + sizeof digits;

	do
		*--p = (char)('0' + n % 10);
	while (n /= 10);
	memcpy(to, p, (u64)(digits + sizeof digits - p));
	to += digits + sizeof digits - p;
	*to = 0;
	return to;
}

/* read_schedstat reads the first two numbers of a file. */
static bool_t read_schedstat(long fd, u64 *its_run, u64 *its_wait)
{
	u64 numbers[2] = {0, 0}, at = 0;
	char text[64];
	long n = sys4(pread64, fd, text, sizeof text, 0);

	for (long i = 0; i < n && at < 2; i++) {
		if (text[i] < '0' || text[i] > '9')
			at++;
		else
			numbers[at] = numbers[at] * 10 + (u64)(text[i] - '0');
	}
	*its_run = numbers[0];
	*its_wait = numbers[1];
	return n > 0;
}

static void look_at_thread(u32 id)
{
	char path[32];
	u64 its_run, its_wait;
	long fd;
	u32 slot = id % SLOTS;

	if (++looks > MOST_LOOKS || (threads[slot].id != id && threads[slot].round >= round - 1))
		return;
	memcpy(put_number(path, id), "/schedstat", sizeof "/schedstat");
	if ((fd = sys4(openat, tasks, path, O_RDONLY | O_CLOEXEC, 0)) < 0)
		return;
	if (read_schedstat(fd, &its_run, &its_wait)) {
		/* A smaller number is that of a new thread with an old ID. */
		bool_t known = threads[slot].id == id && threads[slot].ran <= its_run && threads[slot].waited <= its_wait;
		ran += its_run - (known ? threads[slot].ran : 0);
		waited += its_wait - (known ? threads[slot].waited : 0);
		threads[slot].id = id;
		threads[slot].round = round;
		threads[slot].ran = its_run;
		threads[slot].waited = its_wait;
	}
	sys1(close, fd);
}

static void note_process(u32 id)
{
	if (id > last_of_init && process_count < MOST_LOOKS)
		processes[process_count++] = id;
}

/* look_at_all adds what all threads have run and waited since the last call to ran and waited. */
static void look_at_all(void)
{
	char path[32];

	ran = waited = looks = process_count = 0;
	round++;
	each_number(proc, note_process);
	for (u32 i = 0; i < process_count && looks < MOST_LOOKS; i++) {
		memcpy(put_number(path, processes[i]), "/task", sizeof "/task");
		if ((tasks = sys4(openat, proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)) < 0)
			continue;
		each_number(tasks, look_at_thread);
		sys1(close, tasks);
	}
}

/* own_delay returns for how long init has waited for a processor since the last call. */
static u64 own_delay(void)
{
	u64 before = own_waited, its_run;

	if (!read_schedstat(own, &its_run, &own_waited))
		return 0;
	return own_waited - before;
}

/* new_faults reports whether init has waited for its own memory since the last call. */
static bool_t new_faults(void)
{
	struct rusage usage;
	u64 before = own_faults;

	if (sys2(getrusage, 0, &usage) < 0)
		return 1;
	own_faults = (u64)usage.ru_majflt;
	return own_faults != before;
}

/* processors returns how many processors the container may use, in thousandths. */
static u64 processors(void)
{
	static u64 set[128];
	long n = sys3(sched_getaffinity, 0, sizeof set, set);
	u64 count = 0;

	for (long i = 0; i < n * 8; i++)
		count += set[i / 64] >> i % 64 & 1;
	count = count ? count * 1000 : 1000;
	return its_job->processors && its_job->processors < count ? its_job->processors : count;
}

/* sched_open opens what is read later, before the program exists. */
void sched_open(void)
{
	proc = open_at("/proc", O_RDONLY | O_DIRECTORY);
	own = open_at("/proc/self/schedstat", O_RDONLY);
	sched.known = own >= 0 && proc >= 0;
}

/* sched_begin begins to count: what threads have run and waited before is not the program's. */
void sched_begin(struct job *job)
{
	its_job = job;
	look_at_all();
	own_delay();
	new_faults();
	last_tick = now();
	sched.ran = sched.waited = sched.lacked = sched.gap = 0;
	sched.tick = last_tick + TICK;
}

/* sched_look counts what the program got and lacked since the last call. It lacked what its threads
 * waited for, up to what the container may use: threads that wait for each other lack nothing. */
void sched_look(void)
{
	u64 t = now(), most = (t - last_tick) / 1000 * processors(), could;

	last_tick = t;
	look_at_all();
	could = ran + waited < most ? ran + waited : most;
	sched.ran += ran;
	sched.waited += waited;
	sched.lacked += could > ran ? could - ran : 0;
}

/* sched_tick is called when something has happened, with the time. */
void sched_tick(u64 t)
{
	u64 late, delay;
	bool_t faults;

	if (t < sched.tick)
		return;
	late = t - sched.tick;
	delay = own_delay();
	faults = new_faults();
	if (!faults && late > delay && late - delay >= SECOND)
		sched.gap += late - delay;
	sched_look();
	sched.tick = t + TICK;
}
