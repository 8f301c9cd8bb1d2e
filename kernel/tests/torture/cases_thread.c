// SPDX-License-Identifier: GPL-2.0-only
// Threads that write while others fork. A fork is a cut: what returned before it is in the child,
// what comes after is not, and the child's memory never changes by itself (a stale TLB entry of
// another processor would do that).
#include "torture.h"
#include <pthread.h>
#include <sched.h>

enum { THREADS = 4 };

/*
 * Writer i counts in two pages of different tables, the lower one first. At any cut the lower count
 * is equal to the upper one or ahead by one:
 *
 *	writer				fork
 *	low = n				...
 *	high = n			cut: flush of the TLBs, the child may run
 *	published = n
 */
struct writer {
	volatile uint64_t *low, *high;
	_Atomic uint64_t *published;	/* in shared memory: the forker reads it before it forks */
	_Atomic int *stop;
	int cpu;
};

static void *count(void *argument)
{
	struct writer *x = argument;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(x->cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (uint64_t n = 1; !atomic_load_explicit(x->stop, memory_order_relaxed); n++) {
		*x->low = n;
		atomic_signal_fence(memory_order_seq_cst);
		*x->high = n;
		atomic_store(x->published, n);
	}
	return NULL;
}

static int cut_is_clean(struct writer *x, const uint64_t *before)
{
	uint64_t low[THREADS], high[THREADS];

	for (int i = 0; i < THREADS; i++) {
		low[i] = *x[i].low, high[i] = *x[i].high;
		if (low[i] < before[i] || high[i] < before[i])
			return 2;	/* a write that had returned is missing */
		if (low[i] != high[i] && low[i] != high[i] + 1)
			return 3;	/* not a cut */
	}
	for (int turn = 0; turn < 3; turn++) {
		sched_yield();
		for (int i = 0; i < THREADS; i++)
			if (*x[i].low != low[i] || *x[i].high != high[i])
				return 4;	/* the parent's write shows in the child */
	}
	for (int i = 0; i < THREADS; i++)
		*x[i].low = 0, *x[i].high = 0;	/* must not reach the parent: its writers would notice */
	return 0;
}

static void start(struct world *w, struct writer *x, pthread_t *t, _Atomic int *stop)
{
	for (int i = 0; i < THREADS; i++) {
		x[i] = (struct writer){(volatile uint64_t *)at(w, T1 + 100 + i),
				       (volatile uint64_t *)at(w, T3 + 100 + i),
				       (_Atomic uint64_t *)w->scratch + 64 + 8 * i, stop,
				       i % online_cpus()};
		*x[i].low = *x[i].high = 0;
		atomic_store(x[i].published, 0);
		pthread_create(&t[i], NULL, count, &x[i]);
	}
}

/* a[0] rounds; a[1] what else happens between two forks. The first bad finding of a child, or of
 * the parent. */
static long do_fork_loop(struct world *w, int self, const long *a)
{
	struct writer x[THREADS];
	pthread_t t[THREADS];
	_Atomic int stop = 0;
	long bad = 0;
	int status;

	(void)self;
	start(w, x, t, &stop);
	for (long i = 0; i < a[0] && !bad; i++) {
		uint64_t before[THREADS];

		for (int k = 0; k < THREADS; k++)
			before[k] = atomic_load(x[k].published);
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

		if (pid == 0)
			_exit(cut_is_clean(x, before));
		if (a[1] == 1)
			mprotect(at(w, T2 + 10), 20 * PAGE, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE);
		else if (a[1] == 2)
			madvise(at(w, T2), TABLE, MADV_DONTNEED), *(volatile char *)at(w, T2 + 7) = 1;
		else if (a[1] == 3)
			madvise(at(w, T1 + 100), THREADS * PAGE, MADV_PAGEOUT);
		waitpid(pid, &status, __WALL);
		bad = WIFEXITED(status) ? WEXITSTATUS(status) : 9;
		for (int k = 0; k < THREADS && !bad; k++) {
			uint64_t now = atomic_load(x[k].published);

			if (*x[k].low < now && *x[k].low < before[k])
				bad = 5;
		}
	}
	atomic_store(&stop, 1);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < THREADS && !bad; i++)
		if (*x[i].low != atomic_load(x[i].published) || *x[i].high != *x[i].low)
			bad = 6;
	mprotect(at(w, T2), TABLE, PROT_READ | PROT_WRITE);
	return bad;
}

static const char *const finding[] = {
	"",
	"",
	"a write that returned before the fork is missing in the child",
	"the child's memory is not a cut through time",
	"a write of the parent after the fork shows in the child",
	"a child's write shows in the parent",
	"the parent lost its own write",
	"",
	"",
	"a child died",
};

static void forget(struct world *w, long p, long n)
{
	for (long i = p; i < p + n; i++)
		w->a[0].page[i] = (struct page_model){ .prot = P_UNMAPPED };
}

static void fork_loop(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	long r = on(w, 0, do_fork_loop, scaled(60), k->a[0]);

	must(r == 0, "%s", finding[r % 10]);
	forget(w, T1 + 100, THREADS);
	forget(w, T3 + 100, THREADS);
	if (k->a[0] == 2)
		forget(w, T2, TP);
	verify_deep(w);
	account(w);
	world_end(w);
}

struct forker { struct world *w; long rounds; _Atomic long *bad; struct writer *x; };

static void *fork_thread(void *argument)
{
	struct forker *f = argument;
	int status;

	for (long i = 0; i < f->rounds; i++) {
		uint64_t before[THREADS];

		for (int k = 0; k < THREADS; k++)
			before[k] = atomic_load(f->x[k].published);
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

		if (pid == 0)
			_exit(cut_is_clean(f->x, before));
		waitpid(pid, &status, __WALL);
		if (status)
			atomic_store(f->bad, WIFEXITED(status) ? WEXITSTATUS(status) : 9);
	}
	return NULL;
}

static long do_two_forkers(struct world *w, int self, const long *a)
{
	struct writer x[THREADS];
	pthread_t t[THREADS], f[2];
	_Atomic int stop = 0;
	_Atomic long bad = 0;
	struct forker forker = { w, a[0], &bad, x };

	(void)self;
	start(w, x, t, &stop);
	for (int i = 0; i < 2; i++)
		pthread_create(&f[i], NULL, fork_thread, &forker);
	for (int i = 0; i < 2; i++)
		pthread_join(f[i], NULL);
	atomic_store(&stop, 1);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	return atomic_load(&bad);
}

static void two_forkers(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	long r = on(w, 0, do_two_forkers, scaled(30));

	(void)k;
	must(r == 0, "%s", finding[r % 10]);
	forget(w, T1 + 100, THREADS);
	forget(w, T3 + 100, THREADS);
	verify_deep(w);
	world_end(w);
}

struct share { struct world *w; int self, number; long first, count; pthread_barrier_t *together; };

static void *write_share(void *argument)
{
	struct share *s = argument;

	pthread_barrier_wait(s->together);
	for (long p = s->first + s->number; p < s->first + s->count; p += THREADS)
		fill_page(at(s->w, p), s->w->a[s->self].page[p].key);
	return NULL;
}

/* Threads of one process write interleaved pages of the same tables, all at once. */
static long do_write_together(struct world *w, int self, const long *a)
{
	pthread_barrier_t together;
	struct share s[THREADS];
	pthread_t t[THREADS];

	pthread_barrier_init(&together, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		s[i] = (struct share){ w, self, i, a[0], a[1], &together };
		pthread_create(&t[i], NULL, write_share, &s[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	return 0;
}

/* Unshare against unshare: in N processes with four threads each, at the same time. */
static void unshare_race(const struct kase *k)
{
	struct world *w = layout_world((int)k->a[1]);
	int n = (int)k->a[0];
	long p, count;

	layout_span((int)k->a[1], &p, &count);
	for (int round = 0; round < scaled(10); round++) {
		int first = w->actors;

		if (first + n > MAX_ACTORS)
			break;
		for (int i = 1; i < n; i++)
			m_fork(w, 0);
		for (int i = 0; i < n; i++) {
			int who = i ? first + i - 1 : 0;

			model_new_keys(w, who, p, count);
			rpc_send(w, who, do_write_together, (const long[7]){ p, count });
		}
		for (int i = 0; i < n; i++)
			rpc_answer(w, i ? first + i - 1 : 0);
		verify(w);
		if (round % 3 == 0)
			account(w);
		for (int i = 1; i < n; i++)
			actor_end(w, first + i - 1);
	}
	verify_deep(w);
	world_end(w);
}

/* Writes against the exit of the other sharer: reuse of a table against its copy. */
static void exit_race(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	for (int round = 0; round < scaled(50) && w->actors < MAX_ACTORS - 2; round++) {
		int child = m_fork(w, 0);

		model_new_keys(w, 0, T1, 3 * TP);
		rpc_send(w, 0, do_write_together, (const long[7]){ T1, 3 * TP });
		if (k->a[0] && below(2))
			usleep((useconds_t)below(800));
		if (below(2))
			actor_kill(w, child);
		else
			actor_end(w, child);
		rpc_answer(w, 0);
		verify(w);
	}
	verify_deep(w);
	account(w);
	world_end(w);
}

struct mapper { struct world *w; int self; _Atomic int *stop; _Atomic int *wrong; };

/* Maps, protects and gives up the middle table over and over. */
static void *change_middle(void *argument)
{
	struct mapper *m = argument;
	char *middle = at(m->w, T2);

	for (uint64_t i = 1; !atomic_load(m->stop); i++) {
		fill_page(middle + 40 * PAGE, i);
		mprotect(middle + 30 * PAGE, 20 * PAGE, PROT_READ);
		if (!page_is(middle + 40 * PAGE, i))
			atomic_fetch_add(m->wrong, 1);
		mprotect(middle + 30 * PAGE, 20 * PAGE, PROT_READ | PROT_WRITE);
		madvise(middle + (i % 3) * 10 * PAGE, 35 * PAGE, MADV_DONTNEED);
		if (i % 3 == 2 && !page_is(middle + 40 * PAGE, 0))
			atomic_fetch_add(m->wrong, 1);
		if (i % 16 == 0)
			mmap(middle, TABLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
	return NULL;
}

static long do_map_while_forking(struct world *w, int self, const long *a)
{
	_Atomic int stop = 0, wrong = 0;
	struct mapper m = { w, self, &stop, &wrong };
	pthread_t t;
	long bad = 0;
	int status;

	pthread_create(&t, NULL, change_middle, &m);
	for (long i = 0; i < a[0]; i++) {
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

		if (pid == 0) {
			for (long p = T1; p < T4; p++)
				if ((p < T2 || p >= T3) && !page_is(at(w, p), w->a[self].page[p].key))
					_exit(1);
			try_write(at(w, T2 + 40), 12345);	/* read-only or not, as the moment had it */
			_exit(0);
		}
		fill_page(at(w, T1 + i % TP), w->a[self].page[T1 + i % TP].key);
		waitpid(pid, &status, __WALL);
		bad += status != 0;
	}
	atomic_store(&stop, 1);
	pthread_join(t, NULL);
	return bad * 1000 + atomic_load(&wrong);
}

static void map_while_forking(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	long r = on(w, 0, do_map_while_forking, scaled(150));

	(void)k;
	must(r == 0, "%ld children saw wrong contents, %ld reads of the mapping thread were wrong",
	     r / 1000, r % 1000);
	forget(w, T2, TP);
	verify_deep(w);
	world_end(w);
}

void cases_thread(void)
{
	static const char *const beside[] = { "plain", "mprotect", "dontneed", "pageout" };
	char name[72];

	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "threads/cut-%s", beside[i]);
		add(name, fork_loop, 0, i, 0, 0);
	}
	add("threads/two-forkers", two_forkers, 0, 0, 0, 0);
	for (int n = 2; n <= 6; n += 2)
		for (int layout = 0; layout < L_COUNT; layout += 2) {
			snprintf(name, sizeof(name), "threads/unshare-race-%d/%s", n, layout_name[layout]);
			add(name, unshare_race, 0, n, layout, 0);
		}
	add("threads/exit-race", exit_race, 0, 0, 0, 0);
	add("threads/exit-race-later", exit_race, 0, 1, 0, 0);
	add("threads/map-while-forking", map_while_forking, 0, 0, 0, 0);
}
