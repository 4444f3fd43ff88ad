/* Declarations shared by all parts of sandbox-init. The package comment of
 * sandbox/engine/wire describes the protocol; limits and numbers here match it. */
#ifndef INIT_H
#define INIT_H

#include "sys.h"

enum {
	VERSION = 1,
	HEADER = 12,
	NONCE = 32,
	/* ACCEPTED contains only this many bytes of the nonce. The rest stays secret: the
	 * program can open its own stdout for reading and find unread bytes there. */
	NONCE_SHOWN = 8,
	MOST_JOB = 4 << 20,
	MOST_INPUT = 64 << 10,
	MOST_READY = 1 << 20,
	MOST_REPORT = 128 << 10,
	MOST_MOUNTINFO = 512 << 10,
	MOST_TEXT = 16 << 10,
	MOST_COUNTER = 4 << 10,
	MOST_SIGNAL = 64,
	MOST_REASON = 512,
	/* Bytes of a time in seconds, with three decimals and the NUL. */
	MOST_TIME = 32,
};

enum frame_type { READY = 1, ACCEPTED, REPORT, REFUSED, WAITING, JOB = 16, INPUT, BYE, WAIT, LOOK };

enum refusal { NOT_A_JOB = 1, TOO_LONG, MALFORMED, UNKNOWN_FIELD, DOUBLED, MISSING, BAD_VALUE };

enum stage { ST_STDIN = 1, ST_RLIMIT, ST_CHDIR, ST_FILTER, ST_RELAY, ST_EXEC, ST_OOM_SCORE, ST_FORK, ST_ALIAS };

enum { NO_FORK = 1, WITH_STDIN = 2, TO_WAITER = 4 };

struct limit {
	u32 resource, zero;
	u64 soft, hard;
};

struct job {
	u8 nonce[NONCE];
	char **argv; /* preceded by a free slot, for the shell of a script */
	char **envp;
	char *directory;
	u64 timeout, grace; /* ms; a timeout of 0 means no limit */
	u64 soft_lead;      /* ms between the soft signal and the deadline; 0: no soft signal */
	u32 soft_signal;
	u64 orphan_limit; /* ms that remain at most without a controller; 0: all */
	char *deadline;   /* where the deadline variable gets its value; NULL: none */
	struct limit *limits;
	u64 limit_count;
	bool_t has_oom_score;
	i32 oom_score;
	u32 flags;
	u16 relay_port, relay_most;
	char *relay_path; /* NULL: no relay */
	char *scratch;    /* the working directory that ends with the container; NULL: none */
	char **aliases;   /* symbolic links: the path, and behind its NUL the target */
	u64 alias_count;
	u64 processors;   /* that the program may use, in thousandths; 0: all */
	const u8 *file;   /* of a waiting process only */
	u64 file_size;
};

/* A buffer that sets full instead of overflowing. */
struct buffer {
	u8 *p;
	u64 n, size;
	u64 frame; /* offset of the header of the frame being written */
	bool_t full;
};

/* wire.c */
u32 get32(const u8 *p);
u64 get64(const u8 *p);
void put(struct buffer *b, const void *p, u64 n);
void put32(struct buffer *b, u32 v);
void put64(struct buffer *b, u64 v);
void frame_begin(struct buffer *b, enum frame_type type);
void frame_end(struct buffer *b);
u64 field_begin(struct buffer *b, u16 tag);
void field_end(struct buffer *b, u64 at);
void field(struct buffer *b, u16 tag, const void *p, u64 n);
void field32(struct buffer *b, u16 tag, u32 v);
void end_line(struct buffer *b, u16 tag);
void put_file(struct buffer *b, int fd, u64 most);
const char *parse_job(struct job *job, enum frame_type type, u8 *payload, u64 n, char **environ, enum refusal *why);
void put_time(char *to, u64 ms);

/* ready.c */
void put_ready(struct buffer *b, char **arguments);
void open_counters(void);
void put_counters(struct buffer *b, u16 tag);
u32 count_processes(void);
u32 each_number(long directory, void (*visit)(u32 number));

/* second_stage.c */
extern u32 last_of_init; /* PID 1 and its threads have the IDs 1 to last_of_init */
struct failure {
	u32 stage, error, detail;
};
/* The descriptors of a process that waits for a job: its line to init, a file, and what
 * discards its output. A program has none of them. */
struct waiter_fds {
	int line, file, output;
};
void __attribute__((noreturn)) second_stage(struct job *job, int failures, int input, const struct waiter_fds *waiter);

/* waiter.c */
enum waiter_state { ABSENT, STARTING, IDLE, ASKED, TAKEN, FAILED };
enum waiter_cause { RAN = 1, SAID_NO, ENDED, NOT_EXECUTED, NOT_READY, NOT_HANDED, UNWANTED };
extern struct waiter {
	enum waiter_state state;
	enum waiter_cause cause;
	i64 pid;
	int line, output, input; /* init's ends */
	u64 until;               /* when it must have answered */
	u64 used;                /* CPU time before the job, in ns */
	u32 value, error;        /* of the cause: wait status, or stage and errno */
	u64 length;
	u8 reason[MOST_REASON];
} waiter;
void waiter_start(struct job *job);
/* Last digits of process IDs, in hexadecimal: a warm-up, which never becomes the program, has the ID
 * before the program's. */
enum { OF_PROGRAM = 0, OF_WARM_UP = 15 };
void use_ids(u32 next);
void waiter_read(void);
void waiter_drain(void);
void waiter_ask(const struct job *job);
void waiter_fail(enum waiter_cause cause);

/* sched.c */
extern struct sched {
	bool_t known;             /* the kernel says how long a thread has waited */
	u64 ran, waited, lacked;  /* ns of all threads */
	u64 available;            /* ns of processors that the container may use and that were not idle */
	u64 gap;                  /* ns in which nothing of the container ran */
	u64 tick;                 /* when to look again */
} sched;
void sched_open(void);
void sched_begin(struct job *job);
void sched_look(void);
void sched_tick(u64 t);

/* scratch.c */
long scratch_open(const struct job *job, u32 *failed);
void put_scratch(struct buffer *b);

/* relay.c */
struct pollfd;
int relay_open(const struct job *job);
bool_t relay_lost(void);
int relay_watch(struct pollfd *polls, u64 *until);
void relay_step(const struct pollfd *polls);
void relay_close(void);
u64 relay_polls(void);

#endif
