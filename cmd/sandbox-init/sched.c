/* How much of the processors the program gets. Each second, before a signal that ends it, and at the
 * end, init reads how long every thread of the container has run, and how long it has waited for a
 * processor while it could have run (schedstat of proc(5)). A thread that ends by itself takes less
 * than a second of this with it; of the main process, the last reading is made before it is reaped.
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
static long proc = -1, tasks = -1, own = -1, stat = -1;
static u64 ran, waited; /* since the last tick */
static u64 last_tick, last_idle, own_waited, own_faults;
static struct job *running_job;
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
static bool_t read_schedstat(long fd, u64 *run_time, u64 *wait_time)
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
	*run_time = numbers[0];
	*wait_time = numbers[1];
	return n > 0;
}

static void look_at_thread(u32 id)
{
	char path[32];
	u64 run_time, wait_time;
	long fd;
	u32 slot = id % SLOTS;

	if (++looks > MOST_LOOKS || (threads[slot].id != id && threads[slot].round >= round - 1))
		return;
	memcpy(put_number(path, id), "/schedstat", sizeof "/schedstat");
	if ((fd = sys4(openat, tasks, path, O_RDONLY | O_CLOEXEC, 0)) < 0)
		return;
	if (read_schedstat(fd, &run_time, &wait_time)) {
		/* A smaller number means that a new thread has an old ID. */
		bool_t known = threads[slot].id == id && threads[slot].ran <= run_time && threads[slot].waited <= wait_time;
		ran += run_time - (known ? threads[slot].ran : 0);
		waited += wait_time - (known ? threads[slot].waited : 0);
		threads[slot].id = id;
		threads[slot].round = round;
		threads[slot].ran = run_time;
		threads[slot].waited = wait_time;
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
	u64 before = own_waited, run_time;

	if (!read_schedstat(own, &run_time, &own_waited))
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

/* The processors that the container may use, as a set of bits. */
static u64 set[128];
static u64 set_bits;

/* count_processors returns how many processors the container may use. */
static u64 count_processors(void)
{
	long n = sys3(sched_getaffinity, 0, sizeof set, set);
	u64 count = 0;

	set_bits = n > 0 ? (u64)n * 8 : 0;
	for (u64 i = 0; i < set_bits; i++)
		count += set[i / 64] >> i % 64 & 1;
	return count ? count : 1;
}

/* idle_time returns for how long the processors of the set have been idle or waited for a disk, in ns:
 * the 4th and 5th number of the lines "cpuN ..." of /proc/stat, in hundredths of a second. 0 if it is
 * not known. A program that lacks processor time while a processor is idle lacks it by its own choice. */
static u64 idle_time(void)
{
	static char text[128 << 10];
	long n = sys4(pread64, stat, text, sizeof text - 1, 0);
	u64 idle = 0;
	char *p = text;

	if (n <= 0)
		return 0;
	text[n] = 0;
	while (p[0] == 'c' && p[1] == 'p' && p[2] == 'u') {
		u64 number = 0, processor = ~0UL;
		int field = -1;
		for (p += 3; *p && *p != '\n'; p++) {
			if (*p >= '0' && *p <= '9') {
				number = number * 10 + (u64)(*p - '0');
				if (p[1] >= '0' && p[1] <= '9')
					continue;
				field++;
				if (!field)
					processor = number;
				else if ((field == 4 || field == 5) && processor < set_bits && set[processor / 64] >> processor % 64 & 1)
					idle += number * (SECOND / 100);
				number = 0;
			} else if (*p == ' ' && field < 0) {
				field = 0; /* the sum of all has no number */
			}
		}
		p += *p == '\n';
	}
	return *p == 'i' ? idle : 0; /* "intr" follows: all processors were read */
}

/* available returns the processor time that the container could have used in a time, in ns. */
static u64 available(u64 time)
{
	u64 count = count_processors(), before = last_idle, all = time * count, most = time / 1000 * running_job->processors, idle;

	last_idle = idle_time();
	idle = last_idle > before ? last_idle - before : 0;
	all = all > idle ? all - idle : 0;
	return running_job->processors && most < all ? most : all;
}

/* sched_open opens what is read later, before the program exists. */
void sched_open(void)
{
	proc = open_at("/proc", O_RDONLY | O_DIRECTORY);
	own = open_at("/proc/self/schedstat", O_RDONLY);
	stat = open_at("/proc/stat", O_RDONLY);
}

/* sched_begin begins to count: what threads have run and waited before is not the program's. */
void sched_begin(struct job *job)
{
	u64 run_time = 0, wait_time;

	running_job = job;
	look_at_all();
	/* A kernel that does not count answers with zeros. */
	sched.known = proc >= 0 && read_schedstat(own, &run_time, &wait_time) && run_time;
	own_delay();
	new_faults();
	count_processors();
	last_idle = idle_time();
	last_tick = now();
	sched.ran = sched.waited = sched.lacked = sched.available = sched.gap = 0;
	sched.tick = last_tick + TICK;
}

/* sched_look counts what the program got and lacked since the last call. It lacked what its threads
 * waited for, up to what the container could have used: threads that wait for each other, or for one
 * processor while another processor is idle, lack nothing. */
void sched_look(void)
{
	u64 t = now(), most = available(t - last_tick), could;

	last_tick = t;
	look_at_all();
	could = ran + waited < most ? ran + waited : most;
	sched.available += most;
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
