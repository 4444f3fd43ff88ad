/* The second stage, between fork and exec: it sets up the process as the job asks. */
#include "init.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#define DEFAULT_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int failures_fd;

/* Where a waiting process has its line to init and its file: above the descriptors of init. */
enum { WAITER_LINE = 62, WAITER_FILE };

static void __attribute__((noreturn)) fail(enum stage stage, long result, u32 detail)
{
	struct failure f = {stage, (u32)-result, detail};
	sys3(write, failures_fd, &f, sizeof f);
	leave(127);
}

static void check(enum stage stage, long result)
{
	if (result < 0)
		fail(stage, result, 0);
}

static void set_oom_score(i32 score)
{
	char text[12], *p = text + sizeof text;
	u32 n = score < 0 ? (u32)-score : (u32)score;
	do
		*--p = (char)('0' + n % 10);
	while (n /= 10);
	if (score < 0)
		*--p = '-';
	/* The /proc files of a process that is not dumpable belong to root. */
	sys5(prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
	long fd = open_at("/proc/self/oom_score_adj", O_WRONLY);
	check(ST_OOM_SCORE, fd);
	check(ST_OOM_SCORE, sys3(write, fd, p, text + sizeof text - p));
}

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#define ARCH_32 AUDIT_ARCH_I386
#define SAME_BUT 0x40000000 /* x32 system calls have the same numbers plus this bit */
#define FORK __NR_fork
#define VFORK __NR_vfork
enum { PRLIMIT_32 = 340, SCHED_SETATTR_32 = 351 };
#else
#define ARCH AUDIT_ARCH_AARCH64
#define ARCH_32 AUDIT_ARCH_ARM
#define SAME_BUT 0
#define FORK __NR_clone3 /* arm64 has neither fork nor vfork: repeat a number that is checked anyway */
#define VFORK __NR_clone3
enum { PRLIMIT_32 = 369, SCHED_SETATTR_32 = 380 };
#endif

/* i386 and 32-bit ARM share these numbers. */
enum { FORK_32 = 2, SETPRIORITY_32 = 97, CLONE_32 = 120, SCHED_SETPARAM_32 = 154, SCHED_SETSCHEDULER_32 = 156,
	VFORK_32 = 190, SCHED_SETAFFINITY_32 = 241, CLONE3_32 = 435 };

#define STATEMENT(code, k) {(code), 0, 0, (k)}
#define IF_EQUAL(k, yes, no) {BPF_JMP | BPF_JEQ | BPF_K, (yes), (no), (k)}
#define LOAD(member) STATEMENT(BPF_LD | BPF_W | BPF_ABS, __builtin_offsetof(struct seccomp_data, member))
#define RETURN(action) STATEMENT(BPF_RET | BPF_K, (action))
#define BY_USER 2 /* PRIO_USER of setpriority */
#define THREAD 0x10000 /* CLONE_THREAD: the call creates a thread, not a process */

static long install(struct sock_filter *filter, u64 length)
{
	struct sock_fprog program = {(unsigned short)length, filter};
	long r = sys5(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return r < 0 ? r : sys3(seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* forbid_processes permits new threads, but no new processes. A filter cannot see the
 * flags of clone3, so clone3 fails with ENOSYS, and C libraries fall back to clone. */
static long forbid_processes(void)
{
	static struct sock_filter filter[] = {
		LOAD(arch),
		IF_EQUAL(ARCH, 2, 0),
		IF_EQUAL(ARCH_32, 7, 0),
		RETURN(SECCOMP_RET_KILL_PROCESS),
		LOAD(nr),
		STATEMENT(BPF_ALU | BPF_AND | BPF_K, ~(u32)SAME_BUT),
		IF_EQUAL(__NR_clone3, 12, 0),
		IF_EQUAL(FORK, 10, 0),
		IF_EQUAL(VFORK, 9, 0),
		IF_EQUAL(__NR_clone, 5, 7),
		LOAD(nr),
		IF_EQUAL(CLONE3_32, 7, 0),
		IF_EQUAL(FORK_32, 5, 0),
		IF_EQUAL(VFORK_32, 4, 0),
		IF_EQUAL(CLONE_32, 0, 2),
		LOAD(args[0]),
		{BPF_JMP | BPF_JSET | BPF_K, 0, 1, THREAD},
		RETURN(SECCOMP_RET_ALLOW),
		RETURN(SECCOMP_RET_ERRNO | EPERM),
		RETURN(SECCOMP_RET_ERRNO | ENOSYS),
	};
	return install(filter, sizeof filter / sizeof *filter);
}

u32 last_of_init = 1;

/* guard_init keeps the program from changing limits, scheduling and priority of PID 1,
 * which the kernel permits to the same user: an init with SCHED_IDLE acts on its deadline
 * too late, and one with a CPU time limit is killed. The kernel reads the lower 32 bits of
 * a process ID, so the filter loads only those. */
static long guard_init(void)
{
	struct sock_filter filter[] = {
		LOAD(arch),
		IF_EQUAL(ARCH, 2, 0),
		IF_EQUAL(ARCH_32, 10, 0),
		RETURN(SECCOMP_RET_KILL_PROCESS),
		LOAD(nr),
		STATEMENT(BPF_ALU | BPF_AND | BPF_K, ~(u32)SAME_BUT),
		IF_EQUAL(__NR_prlimit64, 17, 0),
		IF_EQUAL(__NR_sched_setscheduler, 16, 0),
		IF_EQUAL(__NR_sched_setparam, 15, 0),
		IF_EQUAL(__NR_sched_setattr, 14, 0),
		IF_EQUAL(__NR_sched_setaffinity, 13, 0),
		IF_EQUAL(__NR_setpriority, 8, 0),
		RETURN(SECCOMP_RET_ALLOW),
		LOAD(nr),
		IF_EQUAL(PRLIMIT_32, 9, 0),
		IF_EQUAL(SCHED_SETSCHEDULER_32, 8, 0),
		IF_EQUAL(SCHED_SETPARAM_32, 7, 0),
		IF_EQUAL(SCHED_SETATTR_32, 6, 0),
		IF_EQUAL(SCHED_SETAFFINITY_32, 5, 0),
		IF_EQUAL(SETPRIORITY_32, 0, 8),
		LOAD(args[0]),
		IF_EQUAL(BY_USER, 5, 0),
		LOAD(args[1]), /* a process or a process group */
		STATEMENT(BPF_JMP | BPF_JA, 1),
		LOAD(args[0]),
		IF_EQUAL(0, 2, 0), /* the caller itself */
		{BPF_JMP | BPF_JGT | BPF_K, 1, 0, last_of_init},
		RETURN(SECCOMP_RET_ERRNO | EPERM),
		RETURN(SECCOMP_RET_ALLOW),
	};
	return install(filter, sizeof filter / sizeof *filter);
}

static bool_t has_slash(const char *s)
{
	for (; *s; s++)
		if (*s == '/')
			return 1;
	return 0;
}

/* execute is execve with the fallback of C libraries: a script without an interpreter line
 * runs in /bin/sh. */
static long execute(const char *file, struct job *job)
{
	long r = sys3(execve, file, job->argv, job->envp);
	if (r != -ENOEXEC)
		return r;
	char *first = job->argv[0];
	job->argv[-1] = "/bin/sh";
	job->argv[0] = (char *)file;
	r = sys3(execve, "/bin/sh", job->argv - 1, job->envp);
	job->argv[0] = first;
	return r;
}

/* search looks up and executes the program like execvpe(3), so that a user sees the same
 * one of several errors. */
static long search(struct job *job)
{
	static char file[4096 + 256];
	const char *name = job->argv[0], *path = DEFAULT_PATH + 5;
	u64 length = strlen(name);
	bool_t denied = 0;
	long r = -ENOENT;

	if (has_slash(name))
		return execute(name, job);
	if (length > 255)
		return -ENAMETOOLONG;
	for (char **e = job->envp; *e; e++)
		if (!memcmp(*e, DEFAULT_PATH, 5)) {
			path = *e + 5;
			break;
		}
	for (;; path++) {
		u64 n = 0;
		while (path[n] && path[n] != ':')
			n++;
		if (n < 4096) {
			/* An empty entry is the current directory. */
			memcpy(file, path, n);
			file[n] = '/';
			memcpy(file + n + (n > 0), name, length + 1);
			r = execute(file, job);
			switch (-r) {
			case EACCES:
				denied = 1;
				break;
			case ENOENT:
			case ESTALE:
			case ENOTDIR:
			case ENODEV:
			case ETIMEDOUT:
				break;
			default:
				return r;
			}
		}
		path += n;
		if (!*path)
			return denied ? -EACCES : r;
	}
}

void second_stage(struct job *job, int failures, int input, const struct waiter_fds *waiter)
{
	static const u64 no_signals;

	failures_fd = failures;
	memset(job->nonce, 0, NONCE); /* not needed in this process */
	if (input < 0) {
		input = (int)open_at("/dev/null", O_RDONLY);
		check(ST_STDIN, input);
	}
	check(ST_STDIN, sys3(dup3, input, 0, 0));
	if (waiter) {
		check(ST_STDIN, sys3(dup3, waiter->output, 1, 0));
		check(ST_STDIN, sys3(dup3, waiter->output, 2, 0));
		check(ST_STDIN, sys3(dup3, waiter->line, WAITER_LINE, 0));
		check(ST_STDIN, sys3(dup3, waiter->file, WAITER_FILE, 0));
	}
	sys2(setpgid, 0, 0);
	/* Before the limits: RLIMIT_NOFILE may forbid opening the file. */
	if (job->has_oom_score)
		set_oom_score(job->oom_score);
	for (u64 i = 0; i < job->limit_count; i++) {
		const struct limit *l = &job->limits[i];
		long r = sys4(prlimit64, 0, l->resource, &l->soft, NULL);
		if (r < 0)
			fail(ST_RLIMIT, r, l->resource);
	}
	check(ST_CHDIR, sys1(chdir, job->directory));
	check(ST_FILTER, guard_init());
	if (job->flags & NO_FORK)
		check(ST_FILTER, forbid_processes());
	sys4(rt_sigprocmask, SIG_SETMASK, &no_signals, NULL, sizeof no_signals);
	fail(ST_EXEC, search(job), 0);
}
