// SPDX-License-Identifier: GPL-2.0-only
// The matrix: every action on every extent of every layout, by the parent, the child, both, both at
// once, and a grandchild; then what was not acted upon is written, somebody leaves, and somebody is
// forked anew.
#include "torture.h"
#include <pthread.h>

enum { W_PARENT, W_CHILD, W_BOTH, W_RACE, W_GRANDCHILD, W_COUNT };
static const char *const who_name[] = { "parent", "child", "both", "both at once", "grandchild" };

static const struct action *action(long number)
{
	static const struct action *const lists[] = { actions_memory, actions_advice, actions_remote };

	for (int l = 0; l < 3; l++)
		for (const struct action *a = lists[l]; a->name; a++)
			if (number-- == 0)
				return a;
	return NULL;
}

struct racer { struct world *w; const struct action *a; int actor; long page, count; };

static void *race(void *argument)
{
	struct racer *r = argument;

	r->a->act(r->w, r->actor, r->page, r->count);
	return NULL;
}

static void both_at_once(struct world *w, const struct action *a, long p, long n)
{
	struct racer r[2] = { { w, a, 0, p, n }, { w, a, 1, p, n } };
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		must(pthread_create(&t[i], NULL, race, &r[i]) == 0, "no thread");
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}

static void act_by(struct world *w, const struct action *a, int who, long p, long n)
{
	switch (who) {
	case W_PARENT: a->act(w, 0, p, n); break;
	case W_CHILD: a->act(w, 1, p, n); break;
	case W_BOTH: a->act(w, 0, p, n); a->act(w, 1, p, n); break;
	case W_RACE: both_at_once(w, a, p, n); break;
	case W_GRANDCHILD: a->act(w, 2, p, n); break;
	}
}

/* Everybody writes into every table, so that what was shared by mistake shows. */
static void everybody_writes(struct world *w)
{
	for (int i = 0; i < w->actors; i++)
		if (w->a[i].live)
			for (long t = T1; t < T4; t += TP)
				m_write(w, i, t + 3 * i, 2), m_write(w, i, t + 205 + i, 1), m_write(w, i, t + TP - 1 - i, 1);
	verify(w);
}

static void must_have_shared(const struct world *w, bool expected)
{
	long now = vmstat("cowpt_share");

	if (now < 0)
		return;
	if (expected)
		must(now > w->share_before,
		     "vmstat cowpt_share stays %ld: nothing was shared, so nothing was tested",
		     now);
	if (!sharing_on())
		must(now == w->share_before, "vmstat cowpt_share rose by %ld with the option off",
		     now - w->share_before);
}

static void scenario(const struct action *a, int layout, int extent, int who)
{
	static const struct action write_action = { "write", m_write, 0, 0 };
	long p, n;

	context("%s of the %s by %s: ", a->name, extent_name[extent], who_name[who]);
	struct world *w = layout_world(layout);

	layout_extent(layout, extent, &p, &n);
	if (a->flags & A_BEFORE)
		a->act(w, 0, p, n);
	int child = m_fork(w, 0);

	if (who == W_GRANDCHILD)
		m_fork(w, child);
	verify(w);
	act_by(w, a->flags & A_BEFORE ? &write_action : a, who, p, n);
	verify(w);
	if (!(a->flags & A_NO_ACCOUNT) && layout != L_THP && (who + extent) % 2 == 0)
		account(w);
	everybody_writes(w);
	if (who == W_GRANDCHILD)
		actor_end(w, child);
	else if (who == W_BOTH)
		actor_kill(w, 0);
	verify(w);
	int parent = w->a[0].live ? 0 : child;
	int late = m_fork(w, parent);

	verify(w);
	m_write(w, late, p, n);
	verify_deep(w);
	must_have_shared(w, sharing_on() && layout_shares(layout) && !(a->flags & A_NO_SHARE));
	world_end(w);
}

/* The layouts that differ most get every extent, the others the one that crosses a border. */
static bool combined(int layout, int extent)
{
	return layout == L_ONE || extent == X_BORDER || (layout == L_STRADDLE && extent == X_ALL);
}

/* Every actor in the first layout, every other one elsewhere; with --quick two scenarios per case,
 * others for each neighbour. */
static void matrix(const struct kase *k)
{
	const struct action *a = action(k->a[0]);
	int layout = (int)k->a[1], number = (int)(k->a[0] + 3 * k->a[1]), done = 0;

	for (int i = 0; i < X_COUNT * W_COUNT; i++) {
		int n = (i * 7 + number) % (X_COUNT * W_COUNT);

		if (layout != L_ONE && (i & 1))
			continue;
		if (combined(layout, n / W_COUNT) && (!opt.quick || done++ < (layout == L_ONE ? 2 : 1)))
			scenario(a, layout, n / W_COUNT, n % W_COUNT);
	}
}

void cases_matrix(void)
{
	const struct action *a;

	for (long i = 0; (a = action(i)) != NULL; i++)
		for (int layout = 0; layout < L_COUNT; layout++) {
			char name[72];

			if (layout == L_STRIPES && (a->flags & A_ONE_VMA))
				continue;
			snprintf(name, sizeof(name), "mem/%s/%s", a->name, layout_name[layout]);
			add(name, matrix, a->need, i, layout, 0);
		}
}
