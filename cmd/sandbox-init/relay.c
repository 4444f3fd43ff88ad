/* The relay of a network level forwards 127.0.0.1:port inside the container to the proxy's
 * Unix socket, because the container has no network. */
#include "init.h"

#include <linux/in.h>
#include <linux/un.h>

/* The kernel does not export these. */
enum { SOCK_STREAM = 1, SOCK_NONBLOCK_CLOEXEC = O_NONBLOCK | O_CLOEXEC, UNIX = 1, INET = 2, SHUT_WRITING = 1, MOST_WAY = 16 << 10 };

/* One direction of a connection. A side is read only while its buffer is empty, so a slow
 * reader slows down only its own writer. */
struct way {
	u8 *bytes;
	u32 at, n;
	bool_t ended;
};

struct connection {
	int fd[2]; /* the program's side and the proxy's */
	struct way way[2]; /* way[i] starts at fd[i] */
};

static int listener = -1;
static struct sockaddr_un proxy = {.sun_family = UNIX};
static struct connection *connections;
static u32 count, most, watched;
static u64 paused_until; /* set after accept failed for lack of resources */

static long connect_proxy(void)
{
	long fd = sys3(socket, UNIX, SOCK_STREAM | SOCK_NONBLOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	long r = sys3(connect, fd, &proxy, sizeof proxy);
	if (r < 0)
		sys1(close, fd);
	return r < 0 ? r : fd;
}

/* relay_open listens, and checks that the proxy does too. It returns 0 or a negative
 * errno. */
int relay_open(const struct job *job)
{
	struct sockaddr_in here = {.sin_family = INET, .sin_port = __builtin_bswap16(job->relay_port), .sin_addr = {__builtin_bswap32(INADDR_LOOPBACK)}};
	static const int on = 1;
	long r;

	memcpy(proxy.sun_path, job->relay_path, strlen(job->relay_path));
	most = job->relay_most;
	if (!(connections = map(most * sizeof *connections)))
		return -ENOMEM;
	if ((r = sys3(socket, INET, SOCK_STREAM | SOCK_NONBLOCK_CLOEXEC, 0)) < 0)
		return (int)r;
	listener = (int)r;
	sys5(setsockopt, listener, 1 /* SOL_SOCKET */, 2 /* SO_REUSEADDR */, &on, sizeof on);
	if ((r = sys3(bind, listener, &here, sizeof here)) < 0 || (r = sys2(listen, listener, 128)) < 0)
		return (int)r;
	if ((r = connect_proxy()) < 0)
		return (int)r;
	sys1(close, r);
	return 0;
}

/* relay_lost reports whether the proxy has died: the kernel refuses connections to its socket. */
bool_t relay_lost(void)
{
	long r = listener >= 0 ? connect_proxy() : -1;
	if (r >= 0)
		sys1(close, r);
	return r == -ECONNREFUSED;
}

/* relay_polls returns how many entries relay_watch may need at most. */
u64 relay_polls(void)
{
	return listener < 0 ? 0 : 1 + 2 * (u64)most;
}

/* relay_watch fills in the descriptors to wait for, and returns their number. An idle
 * descriptor is left out: one that was hung up is always ready. */
int relay_watch(struct pollfd *polls, u64 *until)
{
	if (listener < 0)
		return 0;
	bool_t paused = paused_until > now();
	if (paused && paused_until < *until)
		*until = paused_until;
	polls[0] = (struct pollfd){count < most && !paused ? listener : -1, POLLIN, 0};
	for (u32 i = 0; i < count; i++)
		for (int side = 0; side < 2; side++) {
			const struct way *from = &connections[i].way[side], *to = &connections[i].way[!side];
			short events = (short)((!from->n && !from->ended ? POLLIN : 0) | (to->n ? POLLOUT : 0));
			polls[1 + 2 * i + (u32)side] = (struct pollfd){events ? connections[i].fd[side] : -1, events, 0};
		}
	watched = count;
	return (int)(1 + 2 * count);
}

static bool_t again(long r)
{
	return r == -EAGAIN || r == -EINTR;
}

/* move transfers as much as possible in one direction. It returns 0 if the connection is
 * broken. */
static bool_t move(struct way *way, int from, int to)
{
	if (!way->n && !way->ended) {
		long n = sys3(read, from, way->bytes, MOST_WAY);
		if (n < 0)
			return again(n);
		way->at = 0;
		way->n = (u32)n;
		way->ended = !n;
	}
	while (way->n) {
		long n = sys3(write, to, way->bytes + way->at, way->n);
		if (n < 0)
			return again(n);
		way->at += (u32)n;
		way->n -= (u32)n;
	}
	if (way->ended)
		sys2(shutdown, to, SHUT_WRITING);
	return 1;
}

static void drop(u32 i)
{
	struct connection *c = &connections[i];
	sys1(close, c->fd[0]);
	sys1(close, c->fd[1]);
	sys2(munmap, c->way[0].bytes, 2 * MOST_WAY);
	*c = connections[--count];
}

static void accept_one(void)
{
	long fd = sys4(accept4, listener, NULL, NULL, SOCK_NONBLOCK_CLOEXEC);
	if (again(fd) || fd == -ECONNABORTED)
		return;
	if (fd < 0) {
		paused_until = now() + SECOND / 10;
		return;
	}
	long server = connect_proxy();
	u8 *bytes = server < 0 ? NULL : map(2 * MOST_WAY);
	if (!bytes) {
		if (server >= 0)
			sys1(close, server);
		sys1(close, fd);
		return;
	}
	connections[count++] = (struct connection){{(int)fd, (int)server}, {{bytes, 0, 0, 0}, {bytes + MOST_WAY, 0, 0, 0}}};
}

void relay_step(const struct pollfd *polls)
{
	if (listener < 0)
		return;
	/* Backwards, because drop moves the last connection into the freed slot. */
	for (u32 i = watched; i-- > 0;) {
		struct connection *c = &connections[i];
		bool_t works = 1;
		for (int side = 0; side < 2 && works; side++) {
			short seen = polls[1 + 2 * i + (u32)side].revents;
			if (seen & POLLIN)
				works = move(&c->way[side], c->fd[side], c->fd[!side]);
			if (works && seen & POLLOUT)
				works = move(&c->way[!side], c->fd[!side], c->fd[side]);
		}
		if (!works || (c->way[0].ended && c->way[1].ended && !c->way[0].n && !c->way[1].n))
			drop(i);
	}
	if (polls[0].revents)
		accept_one();
	watched = 0;
}

void relay_close(void)
{
	while (count)
		drop(count - 1);
	if (listener >= 0)
		sys1(close, listener);
	listener = -1;
}
