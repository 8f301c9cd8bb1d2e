// SPDX-License-Identifier: GPL-2.0-only
// Many processes with the same tables: chains of forks, orders of exit, siblings, a fork bomb.
#include "torture.h"
#include <linux/futex.h>
#include <sched.h>
#include <sys/resource.h>

enum { ORDER_FIRST, ORDER_LAST, ORDER_MIDDLE, ORDER_RANDOM, ORDER_KILL };

static int pick(const struct world *w, int order)
{
	int live[MAX_ACTORS], n = 0;

	for (int i = 0; i < w->actors; i++)
		if (w->a[i].live)
			live[n++] = i;
	if (n <= 1)
		return -1;
	return live[order == ORDER_FIRST    ? 0
		    : order == ORDER_LAST   ? n - 1
		    : order == ORDER_MIDDLE ? n / 2
					    : (int)below(n)];
}

/* Six processes, each the child of the one before; they leave in the order of a[0], and the rest
 * stays right. */
static void exit_order(const struct kase *k)
{
	struct world *w = layout_world((int)k->a[1]);
	int leaving;

	for (int i = 0; i < 5; i++) {
		m_write(w, i, T2 + 10 * i, 5);
		must(m_fork(w, i) == i + 1, "actors are out of order");
	}
	verify(w);
	while ((leaving = pick(w, (int)k->a[0])) >= 0) {
		context("before actor %d leaves: ", leaving);
		for (int i = 0; i < w->actors; i++)
			if (w->a[i].live && i % 2)
				m_write(w, i, T1 + TP - 3, 6);
		if (k->a[0] == ORDER_KILL)
			actor_kill(w, leaving);
		else
			actor_end(w, leaving);
		context("after actor %d left: ", leaving);
		verify(w);
	}
	account(w);
	world_end(w);
}

static void depth(const struct kase *k)
{
	int generations = (int)k->a[0];
	struct world *w = layout_world(L_ONE);

	for (int i = 0; i < generations; i++) {
		context("generation %d: ", i);
		m_write(w, m_fork(w, i), T1 + (long)below(3 * TP), 1);
		m_write(w, i, T1 + (long)below(3 * TP), 1);
		if (i % 5 == 4)
			verify(w);
	}
	verify_deep(w);
	account(w);
	world_end(w);
}

static void siblings(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	int n = (int)k->a[0];

	for (int i = 1; i <= n; i++) {
		m_fork(w, 0);
		m_write(w, i, T2 + i, 1);
	}
	verify(w);
	m_write(w, 0, T2, TP);
	for (int i = 1; i <= n; i++)
		m_write(w, i, T1 + (long)below(3 * TP - 8), 8);
	verify(w);
	account(w);
	for (int i = 0, who; i < n && (who = pick(w, ORDER_RANDOM)) >= 0; i++) {
		actor_kill(w, who);
		if (i % 8 == 0)
			verify(w);
	}
	world_end(w);
}

/* The same parent forks again and again; half of the tables are written in between, so that tables
 * shared twice, once and not at all lie side by side. */
static void again(const struct kase *k)
{
	struct world *w = layout_world((int)k->a[1]);
	int rounds = (int)scaled(k->a[0]), before = -1;

	for (int i = 0; i < rounds && w->actors < MAX_ACTORS - 1; i++) {
		int child = m_fork(w, 0);

		m_write(w, i % 2 ? 0 : child, T1 + (long)below(2 * TP), (long)below(TP));
		if (before >= 0) {
			m_write(w, before, T1 + (long)below(3 * TP), 1);
			verify(w);
			if (i % 3)
				actor_end(w, before);
			else
				actor_kill(w, before);
		}
		before = child;
	}
	verify_deep(w);
	account(w);
	world_end(w);
}

struct bomb { _Atomic int started, wrong, go; _Atomic int pids[512]; };

static int bomb_number(struct bomb *b)
{
	int number = atomic_fetch_add(&b->started, 1);

	if (number >= 512)
		_exit(0);
	atomic_store(&b->pids[number], getpid());
	return number;
}

static _Noreturn void bomb_process(struct world *w)
{
	struct bomb *b = (struct bomb *)w->scratch;
	int number = bomb_number(b);

	for (int level = 0, i = 0; i < 3 && level < 5; i++)
		if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
			number = bomb_number(b);
			level++;
			i = -1;
		}
	for (long p = T1 + number % 7;; p += 11) {
		if (p >= T4)
			p = T1 + number % 7;
		volatile uint64_t *word = (volatile uint64_t *)at(w, p);
		uint64_t mine = mix((uint64_t)number << 20 | (uint64_t)p);

		word[9] = mine;
		if (word[8] != word_of(w->a[1].page[p].key, 8) || word[9] != mine)
			atomic_fetch_add(&b->wrong, 1);
	}
}

static long do_bomb(struct world *w, int self, const long *a)
{
	(void)self, (void)a;
	setpriority(PRIO_PROCESS, 0, 19);	/* the case process must get its turn to kill them */
	bomb_process(w);
}

/* Hundreds of processes that write without end are killed at an arbitrary moment. */
static void fork_bomb(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	struct bomb *b = (struct bomb *)w->scratch;
	int most = opt.quick ? 40 : 200;

	(void)k;
	m_fork(w, 0);
	rpc_send(w, 1, do_bomb, (const long[7]){ 0 });
	for (int turn = 0; atomic_load(&b->started) < most && turn < 3000; turn++)
		usleep(1000);
	verify_remote(w, 0, false);
	for (int round = 0, n; round < 3; round++) {
		n = atomic_load(&b->started);
		for (int i = 0; i < n && i < 512; i++)
			if (atomic_load(&b->pids[i]) > 0)
				kill(atomic_load(&b->pids[i]), SIGKILL);
		usleep(1000);
	}
	must(atomic_load(&b->wrong) == 0,
	     "%d reads of the bomb's processes were wrong, expected none", atomic_load(&b->wrong));
	waitpid(w->a[1].pid, NULL, __WALL);
	w->a[1].live = false;
	verify(w);
	m_write(w, 0, T1, 3 * TP);
	verify_deep(w);
	world_end(w);
}

struct generations { _Atomic int last; _Atomic int wrong; };

/* a[0] generations: each forks the next one and exits, so that a table's sharers come and go. */
static long do_generations(struct world *w, int self, const long *a)
{
	struct generations *g = (struct generations *)w->scratch;

	(void)self;
	for (int i = 1; i <= a[0]; i++) {
		long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

		if (pid < 0)
			i--, usleep(1000);
		if (pid > 0)
			_exit(0);
		if (pid)
			continue;
		long p = T1 + (i * 37) % (3 * TP), old = T1 + ((i - 1) * 37) % (3 * TP);

		fill_page(at(w, p), (uint64_t)i);
		if ((i > 1 && !page_is(at(w, old), (uint64_t)i - 1)) || !page_is(at(w, p), (uint64_t)i))
			atomic_fetch_add(&g->wrong, 1);
	}
	atomic_store(&g->last, (int)a[0]);
	_exit(0);
}

static void generations(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	struct generations *g = (struct generations *)w->scratch;
	int n = (int)scaled(k->a[0]), child = m_fork(w, 0);

	rpc_send(w, child, do_generations, (const long[7]){ n });
	while (atomic_load(&g->last) != n)
		usleep(1000);	/* the case's time limit ends a broken chain */
	waitpid(w->a[child].pid, NULL, __WALL);
	w->a[child].live = false;
	must(atomic_load(&g->wrong) == 0, "%d of %d generations found wrong contents",
	     atomic_load(&g->wrong), n);
	verify_deep(w);
	account(w);
	world_end(w);
}

/* Hundreds of sharers that do nothing; then the tables are written by the parent and by a few of
 * them. */
static long do_crowd(struct world *w, int self, const long *a)
{
	_Atomic int *go = (_Atomic int *)w->scratch;

	(void)self;
	for (long i = 0; i < a[0]; i++) {
		long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

		if (pid < 0)
			return -errno;
		if (pid)
			continue;
		atomic_fetch_add(go + 1, 1);
		while (!atomic_load(go))
			syscall(SYS_futex, go, FUTEX_WAIT, 0, NULL, NULL, 0);
		if (i % 16 == 0)
			fill_page(at(w, T2 + i % TP), (uint64_t)i + 1);
		_exit(page_is(at(w, T1 + i % TP), w->a[1].page[T1 + i % TP].key) ? 0 : 1);
	}
	return 0;
}

static long do_reap(struct world *w, int self, const long *a)
{
	int status, bad = 0;

	(void)w, (void)self, (void)a;
	while (wait(&status) > 0)
		bad += status != 0;
	return bad;
}

static void crowd(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	_Atomic int *go = (_Atomic int *)w->scratch;
	long n = opt.quick ? 100 : k->a[0], r;

	m_fork(w, 0);
	r = on(w, 0, do_crowd, n);
	if (r == -EAGAIN || r == -ENOMEM)
		skip("only %d of %ld processes could be made", atomic_load(go + 1), n);
	must(r == 0, "fork: %s", strerror((int)-r));
	m_write(w, 0, T2 + 100, 50);
	verify(w);
	atomic_store(go, 1);
	syscall(SYS_futex, go, FUTEX_WAKE, 1 << 20, NULL, NULL, 0);
	r = on(w, 0, do_reap, 0);
	must(r == 0, "%ld of %ld children found wrong contents or died", r, n);
	verify_deep(w);
	account(w);
	world_end(w);
}

/*
 * Two users of the same tables exit at the same time: each leaves before the other has stopped
 * counting, so the tables go to nobody, with the pages in them. Four hundred tables make that
 * window wide; one page in each keeps it cheap.
 */
#define EXIT_TABLES 400
static void exit_together(const struct kase *k)
{
	_Atomic int *ready = shared_memory(4096);
	long released = vmstat("cowpt_release"), anonymous = meminfo("AnonPages"), round;

	(void)k;
	must(cow_get() == 1 || opt.mode == MODE_ALL, "the mode is not on");
	for (round = 1; round <= 300 && vmstat("cowpt_release") - released < 5 * EXIT_TABLES; round++) {
		pid_t first = fork();

		must(first >= 0, "fork: %s", strerror(errno));
		if (first == 0) {
			size_t size = (EXIT_TABLES + 2) * TP * PAGE;
			char *area = mmap(NULL, size, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

			if (area == MAP_FAILED)
				_exit(1);
			madvise(area, size, MADV_NOHUGEPAGE);
			for (size_t at = 0; at < size; at += TP * PAGE)
				area[at] = 1;
			pid_t second = fork();

			atomic_fetch_add(ready, 1);
			while (atomic_load(ready) < 2 * round)
				sched_yield();
			if (second)
				waitid(P_PID, (id_t)second, NULL, WNOHANG);
			_exit(second < 0);
		}
		for (int left = 2; left > 0; left--) {	/* the grandchild comes to us: the harness is its reaper */
			int status;
			pid_t pid = waitpid(-1, &status, 0);

			if (pid == first)
				must(status == 0, "the child ended with wait status 0x%x", status);
			if (pid < 0)
				break;
		}
	}
	usleep(100000);
	long tables = vmstat("cowpt_release") - released, kept = meminfo("AnonPages") - anonymous;

	if (tables < EXIT_TABLES)
		skip("in %ld rounds only %ld tables were given up by both", round, tables);
	must(kept < tables * 4 / 2,
	     "%ld kB of anonymous pages are left of %ld tables with one page each", kept, tables);
}

void cases_chain(void)
{
	static const char *const order[] = { "first", "last", "middle", "random", "killed" };

	for (int o = 0; o < 5; o++)
		for (int layout = 0; layout < L_COUNT; layout += 2) {
			char name[72];

			snprintf(name, sizeof(name), "chain/exit-%s/%s", order[o], layout_name[layout]);
			add(name, exit_order, 0, o, layout, 0);
		}
	add("chain/depth-20", depth, 0, 20, 0, 0);
	add("chain/depth-60", depth, 0, 60, 0, 0);
	add("chain/siblings-64", siblings, 0, 64, 0, 0);
	add("chain/again/one", again, 0, 60, L_ONE, 0);
	add("chain/again/holes", again, 0, 60, L_HOLES, 0);
	add("chain/again/thp", again, 0, 60, L_THP, 0);
	add("chain/fork-bomb", fork_bomb, 0, 0, 0, 0);
	add("chain/generations-1000", generations, 0, 1000, 0, 0);
	add("chain/crowd-1000", crowd, 0, 1000, 0, 0);
	add("chain/exit-together", exit_together, NEED_COW | NEED_GUEST, 0, 0, 0);
}
