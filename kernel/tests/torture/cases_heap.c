// SPDX-License-Identifier: GPL-2.0-only
// The heap's end, the main stack, and limits of a process: what is not an ordinary mapping.
#include "torture.h"
#include <sys/resource.h>

/* a[0]: page where the heap shall end from now on. */
static long do_brk(struct world *w, int self, const long *a)
{
	(void)self;
	return syscall(SYS_brk, at(w, a[0])) == (long)at(w, a[0]) ? 0 : -ENOMEM;
}

static void set_end(struct world *w, int a, long from, long to)
{
	must(on(w, a, do_brk, to) == 0, "brk by actor %d is refused", a);
	if (to < from)
		model_set(w, a, to, from - to, P_UNMAPPED, 0);
	else
		model_set(w, a, from, to - from, P_RW, 0);
}

/* The end moves into a shared table, to its border, below it, and up again: what comes back is
 * zero. */
static void heap(const struct kase *k)
{
	static const long ends[] = { T3 + 100, T3, T2 + 511, T2 - 1, T1 + 7 };
	struct world *w = layout_world(L_HEAP);
	int who = (int)k->a[0];

	m_fork(w, 0);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		context("heap's end at page %ld: ", ends[i]);
		set_end(w, who, T4, ends[i]);
		verify(w);
		account(w);
		set_end(w, who, ends[i], T4);
		verify(w);
		m_write(w, who, ends[i] - 1, 5);
		m_write(w, 1 - who, ends[i] - 2, 5);
		int third = m_fork(w, who);

		m_write(w, third, ends[i], 2);
		verify(w);
		actor_end(w, third);
	}
	verify_deep(w);
	world_end(w);
}

enum { DEEP = 5 << 20 };

static _Noreturn void stack_child(volatile char *deep, char mine, const char *expected)
{
	for (size_t i = 0; i < DEEP; i += PAGE)
		if (deep[i] != expected[0])
			_exit(1);
	for (size_t i = 0; i < DEEP; i += 3 * PAGE)
		deep[i] = mine;
	_exit(0);
}

/* Five megabytes of stack are filled, forked, and must be different in parent and children. */
static long do_deep_stack(struct world *w, int self, const long *a)
{
	volatile char deep[DEEP];
	char value = 'a';
	int status, bad = 0;

	(void)w, (void)self;
	for (size_t i = 0; i < DEEP; i += PAGE)
		deep[i] = value;
	for (long n = 0; n < a[0]; n++) {
		pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

		if (pid == 0)
			stack_child(deep, 'x', &value);
		if (n % 2)
			deep[(size_t)n * 7 * PAGE] = value;
		waitpid(pid, &status, 0);
		bad += status != 0;
		for (size_t i = 0; i < DEEP; i += PAGE)
			bad += deep[i] != value;
		value++;
		for (size_t i = 0; i < DEEP; i += PAGE)
			deep[i] = value;
	}
	return bad;
}

static void stack(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	long bad = on(w, 0, do_deep_stack, 8);

	must(bad == 0, "%ld pages of the stack or children were wrong", bad);
	m_fork(w, 0);
	bad = on(w, 1, do_deep_stack, 8);
	must(bad == 0, "%ld pages of the child's stack or children were wrong", bad);
	verify_deep(w);
	account(w);
	world_end(w);
}

/* Grows for the first time after the fork, in both at different depths. */
static void stack_growth(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	m_fork(w, 0);
	for (int i = 0; i < 2; i++) {
		long bad = on(w, i, do_deep_stack, 2 + i);

		must(bad == 0, "%ld pages of the grown stack were wrong", bad);
	}
	account(w);
	verify_deep(w);
	world_end(w);
}

static long do_limits(struct world *w, int self, const long *a)
{
	struct rlimit none = { 1 << 20, 1 << 20 }, zero = { 0, 0 };

	(void)self;
	if (setrlimit(RLIMIT_AS, &none) || setrlimit(RLIMIT_MEMLOCK, &zero) ||
	    setrlimit(RLIMIT_DATA, &none))
		return -errno;
	if (geteuid() == 0 && setuid(65534))
		return -errno;
	/* Nothing new may be had, and nothing old is lost. */
	if (mmap(NULL, TABLE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
		return -EEXIST;
	if (mlock(at(w, a[0]), 5 * PAGE) == 0)
		return -EPERM;
	if (mremap(at(w, T4 - 10), 10 * PAGE, 30 * PAGE, 0) != MAP_FAILED)
		return -EEXIST;
	return 0;
}

static void limits(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	m_fork(w, 0);
	long r = on(w, 1, do_limits, T2 + 5);

	must(r == 0, "limits of the child: %s", strerror((int)-r));
	m_write(w, 1, T1 + 100, TP);
	verify(w);
	m_dontneed(w, 1, T2 + 10, 20);
	m_unmap(w, 1, T3 + 10, 20);
	m_protect(w, 1, T3 + 100, 20, P_READ);
	m_write(w, 0, T1, 3 * TP);
	verify_deep(w);
	world_end(w);
}

void cases_heap(void)
{
	add("heap/brk-parent", heap, 0, 0, 0, 0);
	add("heap/brk-child", heap, 0, 1, 0, 0);
	add("stack/deep", stack, 0, 0, 0, 0);
	add("stack/growth", stack_growth, 0, 0, 0, 0);
	add("limit/rlimits", limits, 0, 0, 0, 0);
}
