/* The contents of READY (the container before any program exists), and the cgroup counters
 * of REPORT (after the program has ended). Nothing is parsed here: the controller parses
 * the texts, because a bug there cannot kill a container. */
#include "init.h"

#include <linux/utsname.h>

enum { R_BUILD = 1, R_STATUS, R_LIMITS, R_MOUNTS, R_NET, R_BOOT, R_MACHINE, R_CGROUP, R_STAT, R_WITNESS, R_LINE_END };

static void put_text(struct buffer *b, u16 tag, const char *path, u64 most)
{
	long fd = open_at(path, O_RDONLY);
	if (fd < 0)
		return;
	u64 at = field_begin(b, tag);
	put_file(b, (int)fd, most);
	field_end(b, at);
	sys1(close, fd);
}

static void put_named(struct buffer *b, u16 tag, const char *path, int fd)
{
	u64 at = field_begin(b, tag);
	put(b, path, strlen(path) + 1);
	put_file(b, fd, MOST_COUNTER);
	field_end(b, at);
}

static void put_limits_of_cgroup(struct buffer *b)
{
	static const char *const paths[] = {
		"/sys/fs/cgroup/memory/memory.limit_in_bytes",
		"/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes",
		"/sys/fs/cgroup/pids/pids.max",
		"/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
		"/sys/fs/cgroup/cpu/cpu.cfs_period_us",
		"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us",
		"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us",
		"/sys/fs/cgroup/memory.max",
		"/sys/fs/cgroup/memory.swap.max",
		"/sys/fs/cgroup/pids.max",
		"/sys/fs/cgroup/cpu.max",
	};
	for (u64 i = 0; i < sizeof paths / sizeof *paths; i++) {
		long fd = open_at(paths[i], O_RDONLY);
		if (fd < 0)
			continue;
		put_named(b, R_CGROUP, paths[i], (int)fd);
		sys1(close, fd);
	}
}

static void put_stat(struct buffer *b, const char *path)
{
	struct stat st;
	memset(&st, 0, sizeof st);
	long r = sys4(newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW);
	u64 at = field_begin(b, R_STAT);
	put32(b, (u32)-r);
	put32(b, st.st_mode);
	put64(b, st.st_dev);
	put64(b, st.st_ino);
	put64(b, (u64)st.st_ctime);
	put32(b, (u32)st.st_ctime_nsec);
	put32(b, 0);
	put(b, path, strlen(path));
	field_end(b, at);
}

void put_ready(struct buffer *b, char **arguments)
{
	struct new_utsname name;

	frame_begin(b, READY);
	field(b, R_BUILD, BUILD_ID, sizeof BUILD_ID - 1);
	put_text(b, R_STATUS, "/proc/self/status", MOST_TEXT);
	put_text(b, R_LIMITS, "/proc/self/limits", MOST_TEXT);
	put_text(b, R_MOUNTS, "/proc/self/mountinfo", MOST_MOUNTINFO);
	put_text(b, R_NET, "/proc/net/dev", MOST_TEXT);
	put_text(b, R_BOOT, "/proc/sys/kernel/random/boot_id", 36);
	if (!sys1(uname, &name))
		field(b, R_MACHINE, name.machine, strlen(name.machine));
	put_limits_of_cgroup(b);
	for (; arguments[0] && arguments[1]; arguments += 2)
		if (arguments[0][1] == 's') {
			put_stat(b, arguments[1]);
		} else if (arguments[0][1] == 'w') {
			/* An observer outside sees that this file was opened. */
			long fd = open_at(arguments[1], O_RDONLY | O_NONBLOCK);
			if (fd >= 0)
				sys1(close, fd);
			field32(b, R_WITNESS, fd < 0 ? (u32)-fd : 0);
		}
	end_line(b, R_LINE_END);
	frame_end(b);
}

/* The counters, and /proc for counting processes, are opened before the program exists,
 * when nothing can interfere. */
static struct {
	const char *path;
	long fd;
} counters[] = {
	{"/sys/fs/cgroup/memory/memory.max_usage_in_bytes", -1},
	{"/sys/fs/cgroup/memory/memory.oom_control", -1},
	{"/sys/fs/cgroup/cpuacct/cpuacct.usage", -1},
	{"/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", -1},
	{"/sys/fs/cgroup/memory.peak", -1},
	{"/sys/fs/cgroup/memory.current", -1},
	{"/sys/fs/cgroup/cpu/cpu.stat", -1},
	{"/sys/fs/cgroup/cpu,cpuacct/cpu.stat", -1},
	{"/sys/fs/cgroup/cpu.stat", -1},
	{"/sys/fs/cgroup/cpu.pressure", -1},
	{"/sys/fs/cgroup/memory.events", -1},
};
static long proc = -1;

void open_counters(void)
{
	for (u64 i = 0; i < sizeof counters / sizeof *counters; i++)
		counters[i].fd = open_at(counters[i].path, O_RDONLY);
	proc = open_at("/proc", O_RDONLY | O_DIRECTORY);
}

void put_counters(struct buffer *b, u16 tag)
{
	for (u64 i = 0; i < sizeof counters / sizeof *counters; i++)
		if (counters[i].fd >= 0)
			put_named(b, tag, counters[i].path, (int)counters[i].fd);
}

u32 each_number(long directory, void (*visit)(u32 number))
{
	/* struct linux_dirent64 is not in an exported header. Inode and offset are followed
	 * by the length of the entry, its type and its name. */
	static u8 entries[4096] __attribute__((aligned(8)));
	u32 found = 0;
	long n;
	sys3(lseek, directory, 0, 0);
	while ((n = sys3(getdents64, directory, entries, sizeof entries)) > 0)
		for (u8 *e = entries; e < entries + n; e += *(u16 *)(e + 16)) {
			u32 number = 0;
			const u8 *digit = e + 19;
			for (; *digit >= '0' && *digit <= '9'; digit++)
				number = number * 10 + *digit - '0';
			if (*digit || digit == e + 19)
				continue;
			found++;
			if (visit)
				visit(number);
		}
	return found;
}

/* count_processes returns the number of processes besides init, at least 1: it is called
 * only if some are left, and they may be hidden. */
u32 count_processes(void)
{
	u32 n = each_number(proc, NULL);
	return n > 2 ? n - 1 : 1;
}
