// SPDX-License-Identifier: GPL-2.0-only
// Accounting after every step, absolutely and against a twin whose tables are never shared.
#include "torture.h"

/* One step of the story both twins go through; returns false after the last one. */
static bool story(struct world *w, int step)
{
	switch (step) {
	case 0: m_fork(w, 0); break;
	case 1: m_write(w, 1, T2 + 7, 1); break;
	case 2: m_write(w, 0, T3 + 7, 1); break;
	case 3: m_dontneed(w, 1, T2, TP); break;
	case 4: m_fork(w, 1); break;
	case 5: m_unmap(w, 2, T1 + 10, 20); break;
	case 6: m_protect(w, 0, T2 + 100, 50, P_READ); break;
	case 7: m_unmap(w, 1, T1, TP); break;
	case 8: m_move(w, 0, T3, TP, T5, 0); break;
	case 9: m_fork(w, 0); break;
	case 10: actor_end(w, 1); break;
	case 11: m_read(w, 2, T2, TP); break;
	case 12: m_write(w, 3, T1, 3 * TP); break;
	case 13: m_map(w, 0, T2, TP, P_RW); break;
	case 14: m_dontneed(w, 2, T1 + 40, TP); break;
	case 15: actor_kill(w, 0); break;
	case 16: m_fork(w, 2); m_fork(w, 2); break;
	case 17: m_write(w, 4, T2, 3); break;
	case 18: m_write(w, 2, T2, 3); break;
	case 19: actor_end(w, 2); break;
	default: return false;
	}
	return true;
}

static void after_every_step(const struct kase *k)
{
	struct world *w = layout_world((int)k->a[0]);

	for (int step = 0; story(w, step); step++) {
		context("after step %d: ", step);
		account(w);
		if (step % 4 == 3)
			verify(w);
	}
	verify_deep(w);
	world_end(w);
}

/* The sum of VmPTE and the RssAnon of every actor after every step must be those of the twin with
 * the option off. */
#define STEPS 24
struct figures { long pte[STEPS][8], anon[STEPS][8]; };

static void record(struct figures *f, int layout)
{
	struct world *w = layout_world(layout);

	for (int step = 0; story(w, step); step++)
		for (int i = 0; i < w->actors && i < 8; i++) {
			if (w->a[i].live)	/* an answer: a new child has touched what it needs to wait */
				m_read(w, i, 0, 0);
			f->pte[step][i] = w->a[i].live ? status_value(w->a[i].pid, "VmPTE") : 0;
			f->anon[step][i] = w->a[i].live ? status_value(w->a[i].pid, "RssAnon") : 0;
		}
	world_end(w);
}

/* Both twins start from the same process image, or a buffer more or less would cost a table. */
static void record_apart(struct figures *f, int layout, bool with_option)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (!with_option && opt.has_cow)
			must(cow_set(0) == 0, "PR_SET_COW_FORK 0 fails");
		if (!with_option && opt.mode == MODE_ALL)
			must(write_file(COW_SYSCTL, "1") == 0, "%s cannot be written", COW_SYSCTL);
		record(f, layout);
		if (!with_option && opt.mode == MODE_ALL)
			write_file(COW_SYSCTL, "2");
		_exit(0);
	}
	wait_ok(pid, "a twin");
}

static void twin(const struct kase *k)
{
	struct figures *with = shared_memory(sizeof(*with)), *without = shared_memory(sizeof(*without));
	long slack = 2 * counter_slack() * 4;

	record_apart(with, (int)k->a[0], true);
	record_apart(without, (int)k->a[0], false);
	for (int step = 0; step < STEPS; step++)
		for (int i = 0; i < 8; i++) {
			must(with->pte[step][i] == without->pte[step][i],
			     "step %d, actor %d: VmPTE %ld kB, with the option off %ld kB", step, i,
			     with->pte[step][i], without->pte[step][i]);
			must(labs(with->anon[step][i] - without->anon[step][i]) <= slack,
			     "step %d, actor %d: RssAnon %ld kB, with the option off %ld kB (slack "
			     "%ld)",
			     step, i, with->anon[step][i], without->anon[step][i], slack);
		}
}

/* N sharers: Pss is an N-th of Rss; a page written is private again. */
static void pss(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	int n = (int)k->a[0];
	struct smaps s;
	long rss = 3 * TP * 4;

	for (int i = 1; i < n; i++)
		m_fork(w, i / 2);
	for (int i = 0; i < n; i++) {
		read_smaps(w->a[i].pid, at(w, T1), at(w, T4), &s);
		must(s.rss == rss && s.pss >= rss / n - 2 && s.pss <= rss / n + 2,
		     "actor %d of %d: Rss %ld Pss %ld, expected %ld and %ld", i, n, s.rss, s.pss,
		     rss, rss / n);
		must(n == 1 || s.private == 0, "actor %d of %d: private %ld kB, expected none", i, n, s.private);
	}
	m_write(w, n - 1, T2, 10);
	read_smaps(w->a[n - 1].pid, at(w, T1), at(w, T4), &s);
	must(s.private == (n == 1 ? rss : 40),
	     "private after writing ten pages: %ld kB, expected %d", s.private,
	     n == 1 ? (int)rss : 40);
	account(w);
	while (n-- > 1)
		actor_end(w, n);
	m_read(w, 0, T1, 3 * TP);
	read_smaps(w->a[0].pid, at(w, T1), at(w, T4), &s);
	must(s.private == rss && s.pss == rss, "alone again: private %ld Pss %ld, expected %ld kB",
	     s.private, s.pss, rss);
	world_end(w);
}

/* Many children come and go; what the parent has must stay what it was. */
static void coming_and_going(const struct kase *k)
{
	struct world *w = layout_world((int)k->a[0]);
	long before = status_value(w->a[0].pid, "RssAnon"), pte = status_value(w->a[0].pid, "VmPTE");
	long slack = 2 * counter_slack() * 4, first, count;

	layout_span((int)k->a[0], &first, &count);
	for (int i = 0; i < 60; i++) {
		int child = m_fork(w, 0);

		if (i % 3 == 0)
			m_write(w, child, first + (long)below(count / 2), (long)below(count / 2));
		if (i % 3 == 1)
			m_dontneed(w, child, first + (long)below(count / 2), 1 + (long)below(count / 2));
		if (i % 2)
			actor_end(w, child);
		else
			actor_kill(w, child);
	}
	long after = status_value(w->a[0].pid, "RssAnon"), pte_after = status_value(w->a[0].pid, "VmPTE");

	must(labs(after - before) <= slack,
	     "RssAnon %ld kB after 60 children, before %ld (slack %ld)", after, before, slack);
	must(pte == pte_after, "VmPTE %ld kB after 60 children, before %ld", pte_after, pte);
	account(w);
	verify_deep(w);
	world_end(w);
}

/* Absolute figures: what the twin and pagemap could both get wrong. */
static void absolute(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	long slack = 2 * counter_slack() * 4;

	(void)k;
	must(!sharing_on() || slack < TP * 4, "too many processors for this case: slack %ld kB", slack);
	int child = m_fork(w, 0);
	long parent = status_value(w->a[0].pid, "RssAnon"), own = status_value(w->a[child].pid, "RssAnon");

	must(parent >= 3 * TP * 4 - slack, "RssAnon of the parent %ld kB, expected at least %d",
	     parent, 3 * TP * 4);
	must(labs(own - parent) <= slack, "RssAnon of a new child %ld kB, of its parent %ld", own, parent);
	m_dontneed(w, child, T2, TP);
	long less = status_value(w->a[child].pid, "RssAnon");

	must(labs(own - TP * 4 - less) <= slack,
	     "RssAnon %ld kB after giving up 2048, expected %ld", less, own - TP * 4);
	m_unmap(w, child, T1, 3 * TP);
	long none = status_value(w->a[child].pid, "RssAnon");

	must(none <= slack + 400, "RssAnon %ld kB after giving up everything", none);
	long again = status_value(w->a[0].pid, "RssAnon");

	must(labs(again - parent) <= slack, "RssAnon of the parent %ld kB, before %ld", again, parent);
	verify_deep(w);
	world_end(w);
}

void cases_account(void)
{
	static const int layouts[] = { L_ONE, L_STRADDLE, L_HEAP };
	char name[72];

	for (int i = 0; i < 3; i++) {
		/* The story moves table 3 away, which straddle has only half of. */
		if (layouts[i] != L_STRADDLE) {
			snprintf(name, sizeof(name), "account/steps/%s", layout_name[layouts[i]]);
			add(name, after_every_step, NEED_ROOT, layouts[i], 0, 0);
			snprintf(name, sizeof(name), "account/twin/%s", layout_name[layouts[i]]);
			add(name, twin, 0, layouts[i], 0, 0);
		}
		snprintf(name, sizeof(name), "account/coming-and-going/%s", layout_name[layouts[i]]);
		add(name, coming_and_going, 0, layouts[i], 0, 0);
	}
	for (int n = 1; n <= 16; n *= 2) {
		snprintf(name, sizeof(name), "account/pss-%d", n);
		add(name, pss, NEED_ROOT, n, 0, 0);
	}
	add("account/absolute", absolute, 0, 0, 0, 0);
}
