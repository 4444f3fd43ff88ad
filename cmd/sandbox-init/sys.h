/* Types, system calls, and the few constants that the kernel's headers do not export.
 * sandbox-init does not use a C library: its startup would cost more than the rest of the
 * program, and its handling of signals, locales and memory is not wanted here. */
#ifndef SYS_H
#define SYS_H

#include <asm/errno.h>
#include <linux/fcntl.h>
#include <asm/ioctls.h>
#include <asm/poll.h>
#include <asm/signal.h>
#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/sched.h>
#include <linux/signalfd.h>
#include <linux/wait.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long u64;
typedef long i64;
typedef _Bool bool_t;

#define NULL ((void *)0)
#define SECOND 1000000000UL
#define FOREVER (~0UL)

/* Not in the kernel's exported headers. */
#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC 1
#define MAP_ANONYMOUS_PRIVATE (0x20 | MAP_PRIVATE)

struct timespec_k {
	i64 seconds, nanoseconds;
};

static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
#else
#error "sandbox-init is written for x86-64 and for 64-bit ARM"
#endif
}

/* The results are the kernel's: a negative errno on failure. */
#define sys0(name) sys6(__NR_##name, 0, 0, 0, 0, 0, 0)
#define sys1(name, a) sys6(__NR_##name, (long)(a), 0, 0, 0, 0, 0)
#define sys2(name, a, b) sys6(__NR_##name, (long)(a), (long)(b), 0, 0, 0, 0)
#define sys3(name, a, b, c) sys6(__NR_##name, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define sys4(name, a, b, c, d) sys6(__NR_##name, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define sys5(name, a, b, c, d, e) sys6(__NR_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

/* PAUSE is a system call that waits forever. */
#if defined(__x86_64__)
#define PAUSE __NR_pause
#else
#define PAUSE __NR_ppoll
#endif

#define THREAD_OF_INIT (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

/* new_thread starts a thread that makes one system call again and again, all of whose arguments are
 * unimportant, and returns its ID. The thread needs no stack. */
static inline long new_thread(long flags, long call)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	long result;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n"
			 "0:\tmov %[call], %%rax\n\t"
			 "syscall\n\t"
			 "jmp 0b\n"
			 "1:"
			 : "=a"(result)
			 : "a"(__NR_clone), "D"(flags), "S"(0L), "d"(0L), "r"(r10), "r"(r8), [call] "r"(call)
			 : "rcx", "r11", "memory", "cc");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = __NR_clone;
	register long x0 __asm__("x0") = flags;
	register long x1 __asm__("x1") = 0;
	register long x2 __asm__("x2") = 0;
	register long x3 __asm__("x3") = 0;
	register long x4 __asm__("x4") = 0;
	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n"
			 "0:\tmov x0, #0\n\t"
			 "mov x8, %[call]\n\t" /* the other arguments are zero already */
			 "svc 0\n\t"
			 "b 0b\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), [call] "r"(call)
			 : "memory", "cc");
	return x0;
#endif
}

static inline __attribute__((noreturn)) void leave(int code)
{
	for (;;)
		sys1(exit_group, code);
}

static inline long open_at(const char *path, int flags)
{
	return sys4(openat, AT_FDCWD, path, flags | O_CLOEXEC, 0);
}

/* map returns zeroed memory, or NULL. */
static inline void *map(u64 size)
{
	long p = sys6(__NR_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS_PRIVATE, -1, 0);
	return p < 0 && p > -4096 ? NULL : (void *)p;
}

static inline u64 clock(int which)
{
	struct timespec_k t = {0, 0};
	sys2(clock_gettime, which, &t);
	return (u64)t.seconds * SECOND + (u64)t.nanoseconds;
}

static inline u64 now(void)
{
	return clock(CLOCK_MONOTONIC);
}

/* The compiler may emit calls to the first four by itself. */
void *memcpy(void *to, const void *from, u64 n);
void *memmove(void *to, const void *from, u64 n);
void *memset(void *to, int c, u64 n);
int memcmp(const void *a, const void *b, u64 n);
u64 strlen(const char *s);

#endif
