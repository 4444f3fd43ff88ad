/* Writing frames, and parsing the JOB frame. */
#include "init.h"

void *memcpy(void *to, const void *from, u64 n)
{
	return memmove(to, from, n);
}

void *memmove(void *to, const void *from, u64 n)
{
	u8 *t = to;
	const u8 *f = from;
	if (t < f)
		for (u64 i = 0; i < n; i++)
			t[i] = f[i];
	else
		while (n--)
			t[n] = f[n];
	return to;
}

void *memset(void *to, int c, u64 n)
{
	for (u8 *t = to; n--; t++)
		*t = (u8)c;
	return to;
}

int memcmp(const void *a, const void *b, u64 n)
{
	const u8 *x = a, *y = b;
	for (; n--; x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

u64 strlen(const char *s)
{
	u64 n = 0;
	while (s[n])
		n++;
	return n;
}

u32 get32(const u8 *p)
{
	u32 v;
	memcpy(&v, p, sizeof v); /* both architectures are little-endian */
	return v;
}

u64 get64(const u8 *p)
{
	u64 v;
	memcpy(&v, p, sizeof v);
	return v;
}

void put(struct buffer *b, const void *p, u64 n)
{
	if (b->full || n > b->size - b->n) {
		b->full = 1;
		return;
	}
	memcpy(b->p + b->n, p, n);
	b->n += n;
}

void put32(struct buffer *b, u32 v)
{
	put(b, &v, sizeof v);
}

void put64(struct buffer *b, u64 v)
{
	put(b, &v, sizeof v);
}

static void set32(struct buffer *b, u64 at, u32 v)
{
	if (!b->full)
		memcpy(b->p + at, &v, sizeof v);
}

void frame_begin(struct buffer *b, enum frame_type type)
{
	u8 header[HEADER] = {0, 'E', 'B', 'X', VERSION, (u8)type};
	b->frame = b->n;
	put(b, header, HEADER);
}

void frame_end(struct buffer *b)
{
	set32(b, b->frame + 8, (u32)(b->n - b->frame - HEADER));
}

/* field_begin and field_end enclose a value whose length is not known in advance. */
u64 field_begin(struct buffer *b, u16 tag)
{
	u64 at = b->n;
	put32(b, tag);
	put32(b, 0);
	return at;
}

void field_end(struct buffer *b, u64 at)
{
	set32(b, at + 4, (u32)(b->n - at - 8));
}

void field(struct buffer *b, u16 tag, const void *p, u64 n)
{
	put32(b, tag);
	put32(b, (u32)n);
	put(b, p, n);
}

/* end_line is the last field of a frame that stdout of the container begins with. An engine's
 * log keeps whole lines: it may lose an unterminated one if the engine dies. */
void end_line(struct buffer *b, u16 tag)
{
	field(b, tag, "\n", 1);
}

void field32(struct buffer *b, u16 tag, u32 v)
{
	field(b, tag, &v, sizeof v);
}

/* put_file appends the beginning of a file, at most that many bytes. */
void put_file(struct buffer *b, int fd, u64 most)
{
	u64 start = b->n;
	while (!b->full && b->n - start < most) {
		u64 room = b->size - b->n;
		if (room > most - (b->n - start))
			room = most - (b->n - start);
		long n = sys4(pread64, fd, b->p + b->n, room, b->n - start);
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return;
		b->n += (u64)n;
	}
}

/* The fields of a job, in the order of their tags. */
enum { F_NONCE = 1, F_ARG, F_ENV, F_DIRECTORY, F_TIMEOUT, F_GRACE, F_LIMIT, F_OOM_SCORE, F_FLAGS, F_RELAY, F_SOFT, F_ORPHAN, F_DEADLINE, F_FILE, F_SCRATCH, F_ALIAS, F_PROCESSORS, F_END };

struct span {
	u16 tag;
	u8 *p;
	u32 n;
};

/* next_field reads the field at *at and advances. It returns 1, 0 at the end, or -1 if the
 * payload is malformed. */
static int next_field(u8 *payload, u64 size, u64 *at, struct span *f)
{
	if (*at == size)
		return 0;
	if (size - *at < 8)
		return -1;
	u32 head = get32(payload + *at);
	f->n = get32(payload + *at + 4);
	f->tag = (u16)head;
	if (head >> 16 || f->n > size - *at - 8)
		return -1;
	f->p = payload + *at + 8;
	*at += 8 + (u64)f->n;
	return 1;
}

static bool_t has(const u8 *p, u64 n, u8 byte)
{
	while (n--)
		if (p[n] == byte)
			return 1;
	return 0;
}

/* name_length returns the length of NAME in NAME=value, or 0 if there is no '='. */
static u64 name_length(const char *s, u64 n)
{
	for (u64 i = 0; i < n; i++)
		if (s[i] == '=')
			return i;
	return 0;
}

/* put_time writes milliseconds as seconds with three decimals. */
void put_time(char *to, u64 ms)
{
	char digits[MOST_TIME], *p = digits + sizeof digits;
	u64 n = ms;

	*--p = 0;
	for (int i = 0; i < 4 || n; i++) {
		*--p = (char)('0' + n % 10);
		n /= 10;
		if (i == 2)
			*--p = '.';
	}
	memcpy(to, p, (u64)(digits + sizeof digits - p));
}

/* text turns the bytes of a field into a string without allocating: it moves them back by
 * one, over the end of the field's header, to make room for the NUL. */
static char *text(const struct span *f, u32 skip)
{
	char *s = (char *)f->p - 1;
	memmove(s, f->p + skip, f->n - skip);
	s[f->n - skip] = 0;
	return s;
}

/* check_field returns what is wrong with the value of a field, or NULL. */
static const char *check_field(const struct span *f, bool_t first)
{
	static const u8 sizes[F_END] = {[F_NONCE] = NONCE, [F_TIMEOUT] = 8, [F_GRACE] = 8, [F_LIMIT] = sizeof(struct limit), [F_OOM_SCORE] = 4, [F_FLAGS] = 4, [F_SOFT] = 16, [F_ORPHAN] = 8, [F_PROCESSORS] = 8};
	if (sizes[f->tag] && f->n != sizes[f->tag])
		return "a field of a wrong length";
	switch (f->tag) {
	case F_ARG:
		if (has(f->p, f->n, 0) || (first && !f->n))
			return "a bad argument";
		break;
	case F_ENV:
		if (has(f->p, f->n, 0) || !name_length((char *)f->p, f->n))
			return "a bad variable";
		break;
	case F_DIRECTORY:
	case F_SCRATCH:
		if (has(f->p, f->n, 0) || !f->n || f->p[0] != '/')
			return "a bad directory";
		break;
	case F_ALIAS: {
		u64 path = 0;
		while (path < f->n && f->p[path])
			path++;
		if (path < 2 || f->p[0] != '/' || path + 1 >= f->n || has(f->p + path + 1, f->n - path - 1, 0))
			return "a bad alias";
		break;
	}
	case F_TIMEOUT:
	case F_GRACE:
	case F_ORPHAN:
		if (get64(f->p) >> 40) /* decades: more would overflow as nanoseconds */
			return "a bad duration";
		break;
	case F_PROCESSORS:
		if (!get64(f->p) || get64(f->p) >> 32)
			return "a bad number of processors";
		break;
	case F_LIMIT:
		if (get32(f->p) >= 16 || get32(f->p + 4) || get64(f->p + 8) > get64(f->p + 16))
			return "a bad limit";
		break;
	case F_SOFT:
		if (!get64(f->p) || get64(f->p) >> 40)
			return "a bad duration";
		if (!get32(f->p + 8) || get32(f->p + 8) > MOST_SIGNAL || get32(f->p + 12))
			return "a bad signal";
		break;
	case F_DEADLINE:
		if (!f->n || has(f->p, f->n, 0) || has(f->p, f->n, '='))
			return "a bad variable";
		break;
	case F_OOM_SCORE:
		if ((i32)get32(f->p) < -1000 || (i32)get32(f->p) > 1000)
			return "a bad OOM score";
		break;
	case F_FLAGS:
		if (get32(f->p) & ~(u32)(NO_FORK | WITH_STDIN | TO_WAITER))
			return "an unknown flag";
		break;
	case F_RELAY:
		/* sun_path has 108 bytes with the NUL. */
		if (f->n < 9 || f->n - 8 > 107 || has(f->p + 8, f->n - 8, 0) || !(u16)get32(f->p) || !(get32(f->p) >> 16) || get32(f->p + 4))
			return "a bad relay";
		break;
	}
	return NULL;
}

/* overlay appends those of init's own variables that the job does not set. */
static void overlay(char **envp, u64 n, char **environ)
{
	u64 of_job = n;
	for (; *environ; environ++) {
		u64 length = name_length(*environ, strlen(*environ)), i = 0;
		while (i < of_job && (memcmp(envp[i], *environ, length) || envp[i][length] != '='))
			i++;
		if (i == of_job)
			envp[n++] = *environ;
	}
}

/* parse_job parses the payload of a JOB or WAIT frame in place: the job points into it. On an
 * error it returns a message and sets *why to the reason; otherwise it returns NULL. */
const char *parse_job(struct job *job, enum frame_type type, u8 *payload, u64 size, char **environ, enum refusal *why)
{
	const u32 of_waiter = 1 << F_ARG | 1 << F_ENV | 1 << F_DIRECTORY | 1 << F_TIMEOUT | 1 << F_OOM_SCORE | 1 << F_FLAGS | 1 << F_FILE;
	const u32 known = type == WAIT ? of_waiter : (1 << F_END) - 2 - (1 << F_FILE);
	u64 seen[F_END] = {0}, at = 0, own = 0;
	const char *problem;
	struct span f, deadline = {0};
	int more;

	while ((more = next_field(payload, size, &at, &f)) > 0) {
		if (f.tag >= F_END || !(known >> f.tag & 1)) {
			*why = UNKNOWN_FIELD;
			return "an unknown field";
		}
		*why = BAD_VALUE;
		if ((problem = check_field(&f, !seen[F_ARG])))
			return problem;
		*why = DOUBLED;
		if (f.tag == F_DEADLINE)
			deadline = f;
		if (seen[f.tag]++ && f.tag != F_ARG && f.tag != F_ENV && f.tag != F_LIMIT && f.tag != F_ALIAS)
			return "a field twice";
	}
	*why = MALFORMED;
	if (more < 0)
		return "fields that do not fill the frame";
	*why = MISSING;
	if (!seen[type == WAIT ? F_FILE : F_NONCE] || !seen[F_ARG] || !seen[F_DIRECTORY])
		return "nonce, file, arguments or directory missing";

	while (environ[own])
		own++;
	job->limits = map(seen[F_LIMIT] * sizeof *job->limits + (seen[F_ALIAS] + seen[F_ARG] + seen[F_ENV] + own + 4) * sizeof(char *) + deadline.n + 1 + MOST_TIME);
	*why = TOO_LONG;
	if (!job->limits)
		return "no memory for the job";
	job->aliases = (char **)(job->limits + seen[F_LIMIT]);
	job->argv = job->aliases + seen[F_ALIAS] + 1;
	job->envp = job->argv + seen[F_ARG] + 1;
	u64 argc = 0, envc = 0;
	for (at = 0; next_field(payload, size, &at, &f) > 0;)
		switch (f.tag) {
		case F_NONCE:
			memcpy(job->nonce, f.p, NONCE);
			break;
		case F_ARG:
			job->argv[argc++] = text(&f, 0);
			break;
		case F_ENV:
			job->envp[envc++] = text(&f, 0);
			break;
		case F_DIRECTORY:
			job->directory = text(&f, 0);
			break;
		case F_TIMEOUT:
			job->timeout = get64(f.p);
			break;
		case F_GRACE:
			job->grace = get64(f.p);
			break;
		case F_LIMIT:
			memcpy(&job->limits[job->limit_count++], f.p, sizeof(struct limit));
			break;
		case F_OOM_SCORE:
			job->has_oom_score = 1;
			job->oom_score = (i32)get32(f.p);
			break;
		case F_FLAGS:
			job->flags = get32(f.p);
			break;
		case F_RELAY:
			job->relay_port = (u16)get32(f.p);
			job->relay_most = (u16)(get32(f.p) >> 16);
			job->relay_path = text(&f, 8);
			break;
		case F_SOFT:
			job->soft_lead = get64(f.p);
			job->soft_signal = get32(f.p + 8);
			break;
		case F_ORPHAN:
			job->orphan_limit = get64(f.p);
			break;
		case F_SCRATCH:
			job->scratch = text(&f, 0);
			break;
		case F_ALIAS:
			job->aliases[job->alias_count++] = text(&f, 0);
			break;
		case F_PROCESSORS:
			job->processors = get64(f.p);
			break;
		case F_FILE:
			job->file = f.p;
			job->file_size = f.n;
			break;
		}
	*why = BAD_VALUE;
	if (job->soft_lead && job->soft_lead >= job->timeout)
		return "a soft signal that is not within the time limit";
	if (deadline.n && !job->timeout)
		return "a deadline variable without a time limit";
	if (deadline.n) {
		char *pair = (char *)(job->envp + seen[F_ENV] + own + 2);
		memcpy(pair, deadline.p, deadline.n);
		pair[deadline.n] = '=';
		job->deadline = pair + deadline.n + 1;
		job->envp[envc++] = pair;
	}
	overlay(job->envp, envc, environ);
	return NULL;
}
