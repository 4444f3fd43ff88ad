/* The working directory of the program, which ends with the container: symbolic links in it
 * before the program starts, and the files that are left in it at the end. The program is
 * hostile: what it has left is counted within fixed bounds of entries, depth and time. */
#include "init.h"

enum { MOST_ENTRIES = 20000, MOST_DEPTH = 16, MOST_NAMES = 5, MOST_NAME = 512, MOST_LOOKING = SECOND / 10 };

static long scratch = -1;

/* make_parents creates the directories of a path that do not exist. A failure shows when the
 * link is made. */
static void make_parents(char *path)
{
	for (char *p = path + 1; *p; p++)
		if (*p == '/') {
			*p = 0;
			sys3(mkdirat, AT_FDCWD, path, 0777);
			*p = '/';
		}
}

/* scratch_open makes the links of a job, and opens its working directory before the program
 * can replace it. It returns a negative errno, and sets *failed to the number of the link. */
long scratch_open(const struct job *job, u32 *failed)
{
	for (u64 i = 0; i < job->alias_count; i++) {
		char *path = job->aliases[i];
		make_parents(path);
		long r = sys3(symlinkat, path + strlen(path) + 1, AT_FDCWD, path);
		if (r < 0) {
			*failed = (u32)i;
			return r;
		}
	}
	if (job->scratch)
		scratch = open_at(job->scratch, O_RDONLY | O_DIRECTORY);
	return 0;
}

static struct {
	u64 files, bytes, entries, until, device;
	bool_t partial;
	char path[MOST_NAME];
	struct left {
		u64 size, length;
		char name[MOST_NAME];
	} largest[MOST_NAMES];
} left;

/* add counts a file. Its name is kept if it is one of the largest. */
static void add(u64 size, u64 length)
{
	left.files++;
	left.bytes += size;
	if (left.bytes < size)
		left.bytes = ~0UL;
	for (u64 i = 0; i < MOST_NAMES; i++) {
		struct left *l = &left.largest[i];
		if (l->length && l->size >= size)
			continue;
		memmove(l + 1, l, (MOST_NAMES - 1 - i) * sizeof *l);
		l->size = size;
		l->length = length;
		memcpy(l->name, left.path, length);
		return;
	}
}

/* ignored reports whether nobody misses an entry: names with a dot, and caches of Python. */
static bool_t ignored(const char *name)
{
	static const char cache[] = "__pycache__";
	return *name == '.' || (strlen(name) == sizeof cache - 1 && !memcmp(name, cache, sizeof cache));
}

/* count counts the files of a directory. Other file systems, such as ./final, are left out, and
 * no link is followed. */
static void count(long directory, u32 depth, u64 begin)
{
	static u8 entries[MOST_DEPTH][4096] __attribute__((aligned(8)));
	struct stat st;
	long n;

	while ((n = sys3(getdents64, directory, entries[depth], sizeof entries[depth])) > 0)
		for (u8 *e = entries[depth]; e < entries[depth] + n; e += *(u16 *)(e + 16)) {
			const char *name = (char *)e + 19; /* see each_number */
			u64 length = strlen(name);
			if (++left.entries > MOST_ENTRIES || now() > left.until) {
				left.partial = 1;
				return;
			}
			if (ignored(name))
				continue;
			if (begin + length + 1 > MOST_NAME || sys4(newfstatat, directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
				left.partial = 1;
				continue;
			}
			if (st.st_dev != left.device)
				continue;
			memcpy(left.path + begin, name, length);
			if ((st.st_mode & 0170000) == 0100000)
				add((u64)st.st_size, begin + length);
			if ((st.st_mode & 0170000) != 0040000)
				continue;
			long inner = depth + 1 < MOST_DEPTH ? sys4(openat, directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0) : -1;
			if (inner < 0) {
				left.partial = 1;
				continue;
			}
			left.path[begin + length] = '/';
			count(inner, depth + 1, begin + length + 1);
			sys1(close, inner);
		}
	if (n < 0)
		left.partial = 1;
}

/* put_scratch reports what the program has left in its working directory. */
void put_scratch(struct buffer *b)
{
	struct stat st;

	if (scratch < 0 || sys2(fstat, scratch, &st) < 0)
		return;
	left.device = st.st_dev;
	left.until = now() + MOST_LOOKING;
	count(scratch, 0, 0);
	u64 at = field_begin(b, 16);
	put64(b, left.files);
	put64(b, left.bytes);
	put32(b, !left.partial);
	put32(b, 0);
	field_end(b, at);
	for (u64 i = 0; i < MOST_NAMES && left.largest[i].length; i++)
		field(b, 17, left.largest[i].name, left.largest[i].length);
}
