/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The torture program of copy-on-write page tables.
 *
 * A case is a process of its own (run.c) that makes a *world* (world.c): actors, which are
 * processes with an arena of memory at the same address, and for every actor a model of what each
 * page of its arena must hold. The case process itself never touches the arena; it orders the
 * actors about, changes the models accordingly (ops.c) and lets every actor compare its memory with
 * its model (model.c). The models lie in MAP_SHARED memory, which is never shared by page table, so
 * that a fault of the kernel under test cannot change memory and expectation alike.
 */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define TABLE (2UL << 20)	/* address space of one last-level page table */
#define TP 512			/* its entries */
#define ARENA_PAGES (8 * TP)
#define MAX_ACTORS 68
#define MOST_GLOBS 32

/* --- options and cases (main.c) --- */
enum { MODE_OFF, MODE_ON, MODE_ALL };

struct options {
	int mode;
	bool has_cow;		/* the kernel knows PR_SET_COW_FORK */
	bool quick, verbose, slow, guest;
	uint64_t seed;
	const char *only[MOST_GLOBS];
	int globs;
	const char *dir;	/* where files of O_DIRECT and core dumps go */
};
extern struct options opt;

enum {
	NEED_ROOT = 1,		/* run as root */
	NEED_GUEST = 2,		/* changes the machine: only with --guest */
	NEED_SWAP = 4,		/* a swap device is on */
	NEED_COW = 8,		/* a kernel with the option */
};

struct kase {
	char name[72];
	void (*run)(const struct kase *);
	unsigned need;
	long a[4];
};
void add(const char *name, void (*run)(const struct kase *), unsigned need, long a0, long a1,
	 long a2);

/* --- verdicts (run.c): from any process of a case --- */
_Noreturn void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define fail(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define must(cond, ...) do { if (!(cond)) fail(__VA_ARGS__); } while (0)
#define VERDICT_GIVEN 99	/* exit status of a process whose case has a published verdict */
enum verdict { PASSED, FAILED, SKIPPED };
enum verdict run_case(const struct kase *k, char *message, size_t size);
/* said with a failure: who did what */
void context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* a file or empty directory, when all processes of the case are gone */
void remove_later(const char *path);
void wait_ok(pid_t pid, const char *who);	/* the process must end with status 0 */
long scaled(long n);		/* n, or less of it with --quick, never 0 */
void *shared_memory(size_t size);	/* MAP_SHARED, seen by every process forked later */

uint64_t mix(uint64_t x);
uint64_t rnd(void);		/* of the case's seed */
size_t below(size_t n);
extern uint64_t case_seed;

/* --- actors and worlds (world.c) --- */
enum { P_UNMAPPED, P_NONE, P_READ, P_RW };
enum {
	F_MAYZERO = 1,		/* MADV_FREE: the contents or zeros */
	F_DONTFORK = 2, F_WIPE = 4,
	F_EVER = 8,		/* was mapped once: worth probing now that it is not */
};
struct page_model {
	uint64_t key;		/* word i of the page is key + i * STEP; 0 means zeros */
	uint8_t prot, flags;
};

struct actor {
	pid_t pid;
	int pidfd, command[2], answer[2];
	bool live;
	char note[400];		/* what the actor's last check found */
	struct page_model page[ARENA_PAGES];
};

struct world {
	char *base;		/* of the arena, 2 MB aligned */
	_Atomic uint64_t next_key;
	int actors;
	bool fork_glibc;
	char *scratch;		/* 1 MB of MAP_SHARED memory at the same address everywhere */
	long share_before;	/* vmstat cowpt_share when the world was made */
	struct actor a[MAX_ACTORS];
};

typedef long (*actor_fn)(struct world *w, int self, const long *a);
struct world *world_new(void);
void world_end(struct world *w);	/* every actor exits and is reaped */
long rpc(struct world *w, int actor, actor_fn fn, const long a[7]);
void rpc_send(struct world *w, int actor, actor_fn fn, const long a[7]);
long rpc_answer(struct world *w, int actor);
#define on(w, actor, fn, ...) rpc(w, actor, fn, (const long[7]){ __VA_ARGS__ })
long sys(struct world *w, int actor, long nr, ...);	/* six long arguments; -errno on error */
#define actor_sys(w, actor, nr, ...) on(w, actor, do_syscall, nr, __VA_ARGS__)
long do_syscall(struct world *w, int self, const long *a);
int m_fork(struct world *w, int actor);	/* number of the new actor */
int actor_end(struct world *w, int actor);	/* asks it to exit; wait status */
void actor_kill(struct world *w, int actor);
static inline char *at(const struct world *w, long page) { return w->base + page * PAGE; }

/* --- memory against model (model.c) --- */
#define STEP 0x9e3779b97f4a7c15ULL
static inline uint64_t word_of(uint64_t key, size_t i) { return key ? key + i * STEP : 0; }
void fill_page(void *page, uint64_t key);
bool page_is(const void *page, uint64_t key);
void catch_faults(void);
int try_read(const volatile void *p, uint64_t *value);	/* 0 or the signal */
int try_write(volatile void *p, uint64_t value);
void verify(struct world *w);		/* every actor, one word of every cache line */
void verify_deep(struct world *w);	/* every actor, every word, then from outside too */
void verify_remote(struct world *w, int actor, bool proc_mem);
/* a[0] page, a[1] count: as the model says */
long do_write(struct world *w, int self, const long *a);
long do_read(struct world *w, int self, const long *a);

/* --- operations on memory and model alike (ops.c) --- */
uint64_t new_key(struct world *w);
int prot_bits(int prot);
void model_set(struct world *w, int a, long p, long n, int prot, uint64_t key);
void model_new_keys(struct world *w, int a, long p, long n);	/* for all writable pages */
bool model_mapped(const struct world *w, int a, long p, long n);
void m_map(struct world *w, int a, long p, long n, int prot);
void m_unmap(struct world *w, int a, long p, long n);
void m_protect(struct world *w, int a, long p, long n, int prot);
void m_write(struct world *w, int a, long p, long n);
void m_read(struct world *w, int a, long p, long n);
void m_madvise(struct world *w, int a, long p, long n, int advice);
long m_madvise_may(struct world *w, int a, long p, long n, int advice);	/* any answer is right */
void m_dontneed(struct world *w, int a, long p, long n);
void m_free(struct world *w, int a, long p, long n);
void m_move(struct world *w, int a, long from, long n, long to, int extra_flags);
void model_move(struct world *w, int a, long from, long n, long to, bool keep);

/* --- layouts (layout.c) --- */
enum { L_ONE, L_STRIPES, L_STRADDLE, L_HOLES, L_HEAP, L_THP, L_COUNT };
enum { X_PART, X_TABLE, X_BORDER, X_ALL, X_COUNT };
extern const char *const layout_name[], *const extent_name[];
struct world *layout_world(int layout);	/* a world whose actor 0 has the layout, filled */
void layout_extent(int layout, int extent, long *first, long *count);
bool layout_shares(int layout);
void layout_span(int layout, long *first, long *count);	/* of everything mapped */
#define T1 TP			/* first page of the arena's tables used by layouts */
#define T2 (2 * TP)
#define T3 (3 * TP)
#define T4 (4 * TP)
#define T5 (5 * TP)

/* --- /proc (procfs.c) --- */
#define PM_PRESENT (1ULL << 63)
#define PM_SWAP (1ULL << 62)
#define PM_FILE (1ULL << 61)
#define PM_UFFD_WP (1ULL << 57)
#define PM_EXCLUSIVE (1ULL << 56)
#define PM_SOFT_DIRTY (1ULL << 55)
#define PM_PFN ((1ULL << 55) - 1)
struct vma { unsigned long start, end; char perms[5], name[40]; };
struct smaps {
	long rss, pss, shared, private, anonymous, swap, referenced, locked, ksm, huge, vmas;
};
long vmstat(const char *name);		/* -1: no such counter */
long meminfo(const char *name);
long status_value(pid_t pid, const char *name);	/* -1: no such line */
int read_maps(pid_t pid, struct vma *v, int max);
size_t read_pagemap(pid_t pid, const void *from, size_t pages, uint64_t *out);
void read_smaps(pid_t pid, const void *from, const void *to, struct smaps *s);
long read_file(const char *path, char *buffer, size_t size);	/* -errno */
long write_file(const char *path, const char *text);	/* 0 or -errno */
uint64_t zero_page(void);		/* its page frame number, 0 if not root */
bool swap_is_on(void);
int online_cpus(void);

/* --- accounting against what pagemap shows (account.c) --- */
void account(struct world *w);		/* arena exactly, whole process within the counters' slack */
long counter_slack(void);		/* pages by which status may be off */

/* --- the interface of the option (cow.c) --- */
#define PR_SET_COW_FORK 0x43574601
#define PR_GET_COW_FORK 0x43574602
#define COW_SYSCTL "/proc/sys/vm/cow_fork"
int cow_get(void);
int cow_set(long mode);			/* 0 or -errno */
bool sharing_on(void);			/* forks of this run share tables */
#define PRINT_MODE \
	"--exit-with-mode" /* hidden: a program after exec tells what is left of the mode */
int cow_print_mode(void);
void cow_apply_mode(void);		/* what --mode asks of a case process */

/* --- what the matrix does to memory: actions_*.c, each list ends with a NULL name --- */
enum {
	A_BEFORE = 1,		/* by actor 0 before the fork; afterwards whoever it is writes there */
	A_ONE_VMA = 2,		/* needs the range to be one VMA */
	A_NO_SHARE = 4,		/* may leave no table wholly inside one VMA that is shared */
	A_NO_ACCOUNT = 8,	/* the accounting's oracle does not know it */
};
struct action {
	const char *name;
	void (*act)(struct world *w, int actor, long page, long count);
	unsigned flags, need;
};
extern const struct action actions_memory[], actions_advice[], actions_remote[];

/* --- cgroups (cgroup.c) --- */
struct cgroup { char dir[192]; bool v2; };
bool cgroup_make(struct cgroup *g);	/* false: none on this machine */
void cgroup_enter(const struct cgroup *g, pid_t pid);
long cgroup_limit(const struct cgroup *g, long bytes);	/* -1: none */
long cgroup_reclaim(const struct cgroup *g, long bytes);
/* bytes: the limit, version 1 counts both */
long cgroup_no_swap(const struct cgroup *g, long bytes);
void cgroup_remove(struct cgroup *g);

/* --- io_uring (uring.c) --- */
struct uring { int fd; char *sq, *cq; void *sqes, *params; };
int uring_open(struct uring *u);	/* 0 or -errno */
int uring_register(struct uring *u, void *buffer, size_t size);
long uring_fixed(struct uring *u, bool write, int fd, void *buffer, size_t size, uint64_t offset);

/* --- groups of cases: the table in cases.c --- */
void cases_matrix(void);
void cases_chain(void);
void cases_proc(void);
void cases_account(void);
void cases_interface(void);
void cases_fuzz(void);
void cases_gup(void);
void cases_direct(void);
void cases_uffd(void);
void cases_thread(void);
void cases_life(void);
void cases_core(void);
void cases_swap(void);
void cases_heap(void);
void cases_machine(void);
void cases_fault(void);
void add_all_cases(void);
