// SPDX-License-Identifier: GPL-2.0-only
// Random trees of processes with random calls on random ranges, each against its own model. A
// failure names the round and the step; the same --seed and --only make the same story again.
#include "torture.h"
#include <pthread.h>

enum { MAX_LIVE = 8 };

/* What the story may take from the matrix: actions that hold for any mapped range and leave no flag
 * behind that makes later calls fail. */
static const struct action *known_action(size_t number)
{
	static const char *const left_out[] = {
		"mseal",	 "pkey",       "grow",	       "mlock",	   "mlock-onfault",
		"mlock-munlock", "soft-dirty", "pagemap-scan", "mincore",  "move-pages",
		"migrate-pages", "mergeable",  "collapse",     "hugepage", "ptrace-poke"};
	static const struct action *const lists[] = { actions_memory, actions_advice, actions_remote };
	static const struct action *known[128];
	static bool complete;
	static size_t n;

	for (int l = 0; l < 3 && !complete; l++)
		for (const struct action *a = lists[l]; a->name && n < 128; a++) {
			bool out = (a->flags & (A_BEFORE | A_ONE_VMA)) || (a->need & NEED_GUEST) ||
				   (a->need && geteuid());

			for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++)
				out |= !strcmp(a->name, left_out[i]);
			if (!out)
				known[n++] = a;
		}
	complete = true;
	return known[number % n];
}

static int live_actor(const struct world *w, size_t number)
{
	int live[MAX_ACTORS], n = 0;

	for (int i = 0; i < w->actors; i++)
		if (w->a[i].live)
			live[n++] = i;
	return live[number % (size_t)n];
}

static int count_live(const struct world *w)
{
	int n = 0;

	for (int i = 0; i < w->actors; i++)
		n += w->a[i].live;
	return n;
}

/* A mapped range of actor a: any length from a page to two tables, often on the borders of a table.
 */
static bool mapped_range(const struct world *w, int a, long *p, long *n)
{
	static const long usual[] = { 3, 7, 23, 100, TP / 2, TP, TP, TP + 40, 2 * TP };
	long want = usual[below(9)], start = (long)below(ARENA_PAGES);

	if (below(3) == 0)
		start = start / TP * TP;
	for (long tries = 0; tries < ARENA_PAGES; tries++, start = (start + 1) % ARENA_PAGES)
		if (w->a[a].page[start].prot != P_UNMAPPED)
			break;
	for (*n = 0;
	     *n < want && start + *n < ARENA_PAGES && w->a[a].page[start + *n].prot != P_UNMAPPED;
	     ++*n)
		;
	*p = start;
	return *n >= 3;
}

/* Cuts the range down to the one VMA that holds its first page. */
static void cut_to_vma(const struct world *w, int a, long *p, long *n)
{
	static struct vma v[2048];
	int count = read_maps(w->a[a].pid, v, 2048);

	for (int i = 0; i < count; i++)
		if (v[i].start <= (uintptr_t)at(w, *p) && (uintptr_t)at(w, *p) < v[i].end) {
			long most = (long)((v[i].end - (uintptr_t)at(w, *p)) / PAGE);

			if (*n > most)
				*n = most;
			return;
		}
	fail("actor %d: page %ld is in no VMA, though the model has it mapped", a, *p);
}

static void random_move(struct world *w, int a)
{
	long p, n, to;

	if (!mapped_range(w, a, &p, &n))
		return;
	cut_to_vma(w, a, &p, &n);
	to = below(2) ? (long)below((size_t)(ARENA_PAGES - n)) : (long)below(8) * TP + p % TP;
	if (to + n > ARENA_PAGES || (to < p + n && p < to + n))
		return;
	m_move(w, a, p, n, to, below(4) ? 0 : MREMAP_DONTUNMAP);
}

static void random_lock(struct world *w, int a)
{
	long p, n;

	if (!mapped_range(w, a, &p, &n) || geteuid())
		return;
	actor_sys(w, a, SYS_mlock2, (long)at(w, p), n * (long)PAGE, (long)below(2));
	if (below(4) == 0 && count_live(w) < MAX_LIVE && w->actors < MAX_ACTORS - 1)
		m_fork(w, a);
	long r = actor_sys(w, a, SYS_munlock, (long)at(w, p), n * (long)PAGE);

	must(r == 0, "munlock by actor %d: %s", a, strerror((int)-r));
}

static void random_map(struct world *w, int a)
{
	long p = (long)below(ARENA_PAGES - TP), n = 1 + (long)below(TP);

	if (below(3) == 0)
		p = p / TP * TP, n = TP;
	m_map(w, a, p, n, below(4) ? P_RW : P_READ);
	if (below(3))
		m_write(w, a, p, n);
}

static void random_thp(struct world *w, int a)
{
	long p, n;

	if (!mapped_range(w, a, &p, &n))
		return;
	m_madvise_may(w, a, p, n, MADV_HUGEPAGE);
	m_madvise_may(w, a, p, n, below(2) ? 25 /* MADV_COLLAPSE */ : MADV_NOHUGEPAGE);
}

struct writer { struct world *w; int actor; long page, count; };

static void *write_thread(void *argument)
{
	struct writer *x = argument;

	m_write(x->w, x->actor, x->page, x->count);
	return NULL;
}

/* Everybody writes at once, to overlapping ranges. */
static void all_at_once(struct world *w)
{
	struct writer x[MAX_LIVE];
	pthread_t t[MAX_LIVE];
	long p = (long)below(ARENA_PAGES - TP);
	int n = 0;

	for (int i = 0; i < w->actors && n < MAX_LIVE; i++)
		if (w->a[i].live) {
			x[n] = (struct writer){ w, i, p + (long)below(20), (long)below(TP - 20) };
			must(pthread_create(&t[n], NULL, write_thread, &x[n]) == 0, "no thread");
			n++;
		}
	while (n-- > 0)
		pthread_join(t[n], NULL);
}

static void step(struct world *w, int round, int number, bool thp)
{
	int a = live_actor(w, rnd()), live = count_live(w);
	size_t choice = below(100);
	long p, n;

	context("round %d, step %d, actor %d, choice %zu: ", round, number, a, choice);
	if (choice < 14 && live < MAX_LIVE && w->actors < MAX_ACTORS - 1) {
		m_fork(w, a);
	} else if (choice < 20 && live > 1) {
		if (below(2))
			actor_end(w, a);
		else
			actor_kill(w, a);
	} else if (choice < 30) {
		random_move(w, a);
	} else if (choice < 33) {
		random_lock(w, a);
	} else if (choice < 40) {
		random_map(w, a);
	} else if (choice < 44) {
		all_at_once(w);
	} else if (choice < 48 && thp) {
		random_thp(w, a);
	} else if (choice < 60 && mapped_range(w, a, &p, &n)) {
		m_write(w, a, p, n);
	} else if (mapped_range(w, a, &p, &n)) {
		const struct action *x = known_action(rnd());

		context("round %d, step %d, %s by actor %d of %ld pages at %ld: ", round, number,
			x->name, a, n, p);
		x->act(w, a, p, n);
	}
}

static void fuzz(const struct kase *k)
{
	static const int layouts[] = { L_ONE, L_ONE, L_STRADDLE, L_STRIPES, L_HOLES, L_HEAP, L_THP };
	int rounds = opt.quick ? 1 : 10, steps = 60;

	(void)k;
	for (int round = 0; round < rounds; round++) {
		int layout = layouts[below(7)];
		bool thp = layout == L_THP;
		struct world *w = layout_world(layout);

		for (int i = 0; i < steps; i++) {
			step(w, round, i, thp);
			if (i % 3 == 0)
				verify(w);
			if (i % 12 == 11 && !thp)
				account(w);
		}
		verify_deep(w);
		world_end(w);
	}
}

void cases_fuzz(void)
{
	char name[72];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "fuzz/%02d", i);
		add(name, fuzz, 0, i, 0, 0);
	}
}
