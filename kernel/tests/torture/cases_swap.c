// SPDX-License-Identifier: GPL-2.0-only
// Swap entries in shared tables, reclaim of pages behind them, memory limits.
#include "torture.h"
#include <sys/swap.h>

static void all_out(struct world *w, int a)
{
	long first, count;

	layout_span(L_ONE, &first, &count);
	m_madvise_may(w, a, first, count, MADV_PAGEOUT);
}

static void some_must_be_out(const struct world *w, int a)
{
	if (status_value(w->a[a].pid, "VmSwap") == 0)
		skip("MADV_PAGEOUT swaps nothing out here");
}

/* Everything out, then a fork: the child's tables hold swap entries. a[0]: who comes back first,
 * and how. */
static void before_fork(const struct kase *k)
{
	struct world *w = layout_world((int)k->a[1]);
	long p = T2 - 100, n = TP;

	all_out(w, 0);
	some_must_be_out(w, 0);
	m_fork(w, 0);
	m_fork(w, 1);
	account(w);
	switch (k->a[0]) {
	case 0: m_read(w, 1, p, n); break;
	case 1: m_write(w, 1, p, n); break;
	case 2: m_write(w, 0, p, n); break;
	case 3: m_dontneed(w, 1, p, n); break;
	case 4: m_unmap(w, 0, p, n); break;
	case 5: actor_kill(w, 0); break;
	}
	account(w);
	verify(w);
	account(w);
	all_out(w, 1);
	all_out(w, 2);
	m_write(w, 2, T2, 77);
	account(w);
	actor_end(w, 1);
	verify_deep(w);
	world_end(w);
}

static void swap_rounds(const struct kase *k)
{
	struct world *w = layout_world((int)k->a[0]);

	for (int i = 0; i < (int)scaled(25) && w->actors < MAX_ACTORS - 1; i++) {
		int child = m_fork(w, 0);

		all_out(w, i % 2 ? child : 0);
		m_write(w, i % 3 ? child : 0, T1 + (long)below(2 * TP), (long)below(TP));
		all_out(w, 0);
		m_read(w, child, T1 + (long)below(2 * TP), (long)below(TP));
		if (i % 4 == 0)
			account(w);
		verify(w);
		actor_end(w, child);
	}
	account(w);
	verify_deep(w);
	world_end(w);
}

static void need_cgroup(struct cgroup *g)
{
	if (!cgroup_make(g))
		skip("no memory cgroup here (mount cgroup2, or --guest)");
}

/* Reclaim in earnest: through the reverse map, while three processes have the tables. */
static void reclaim(const struct kase *k)
{
	struct cgroup g;

	need_cgroup(&g);
	struct world *w = layout_world((int)k->a[0]);

	/* Pages stay charged to the group that had them first: these are new ones. */
	cgroup_enter(&g, w->a[0].pid);
	m_dontneed(w, 0, T1 + TP / 2, 2 * TP);
	m_write(w, 0, T1 + TP / 2, 2 * TP);
	m_fork(w, 0);
	m_fork(w, 1);
	long out = 0;

	account(w);		/* from here on every counter has its pages */
	for (int i = 0; i < (int)scaled(10); i++) {
		int who = i % 3 == 2 ? w->actors - 1 : i % 3;

		cgroup_reclaim(&g, 8 << 20);
		out += status_value(w->a[0].pid, "VmSwap");
		account(w);
		m_write(w, who, T1 + TP / 2 + (long)below(TP), (long)below(TP));
		cgroup_reclaim(&g, 8 << 20);
		verify(w);
		if (i % 4 == 1)
			actor_kill(w, w->actors - 1), m_fork(w, i % 2);
	}
	must(out > 0, "memory.reclaim put nothing into swap");
	verify_deep(w);
	account(w);
	world_end(w);
	cgroup_remove(&g);
}

/* A limit below what the processes have: every write makes somebody else's page go. */
static void under_limit(const struct kase *k)
{
	struct cgroup g;

	(void)k;
	need_cgroup(&g);
	struct world *w = layout_world(L_ONE);

	cgroup_enter(&g, w->a[0].pid);
	m_dontneed(w, 0, T1, 3 * TP);
	m_write(w, 0, T1, 3 * TP);
	m_fork(w, 0);
	m_fork(w, 0);
	if (cgroup_limit(&g, 12 << 20))
		skip("the limit is refused");
	for (int i = 0; i < (int)scaled(10); i++) {
		m_write(w, i % 3, T1 + (long)below(2 * TP), TP);
		verify(w);
	}
	account(w);
	cgroup_limit(&g, -1);
	verify_deep(w);
	world_end(w);
	cgroup_remove(&g);
}

/* A child that needs more than there is: it is killed or finishes, and its parent keeps every byte.
 */
static long do_write_more(struct world *w, int self, const long *a)
{
	char *more = mmap(NULL, (size_t)a[0], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)self;
	for (long i = 0; i < 3 * TP; i++)
		fill_page(at(w, T1 + i), (uint64_t)i + 1);
	for (long i = 0; more != MAP_FAILED && i < a[0]; i += PAGE)
		more[i] = 1;
	_exit(0);
}

static void oom(const struct kase *k)
{
	struct cgroup g;
	char path[60];

	(void)k;
	need_cgroup(&g);
	struct world *w = layout_world(L_ONE);

	m_fork(w, 0);
	int victim = m_fork(w, 0);

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", w->a[victim].pid);
	write_file(path, "1000");
	cgroup_enter(&g, w->a[victim].pid);
	if (cgroup_limit(&g, k->a[0] << 20))
		skip("the limit is refused");
	cgroup_no_swap(&g, k->a[0] << 20);
	rpc_send(w, victim, do_write_more, (const long[7]){ 64 << 20 });
	waitpid(w->a[victim].pid, NULL, __WALL);
	w->a[victim].live = false;
	verify(w);
	m_write(w, 1, T2, TP);
	account(w);
	verify_deep(w);
	world_end(w);
	cgroup_remove(&g);
}

/* swapoff while shared tables hold entries of the device. */
static void swap_off(const struct kase *k)
{
	char text[4096], device[200];

	must(read_file("/proc/swaps", text, sizeof(text)) > 0, "/proc/swaps cannot be read");
	char *line = strchr(text, '\n');

	must(line && sscanf(line + 1, "%199s", device) == 1, "/proc/swaps: %s", text);
	struct world *w = layout_world((int)k->a[0]);

	all_out(w, 0);
	some_must_be_out(w, 0);
	m_fork(w, 0);
	m_fork(w, 1);
	m_write(w, 1, T2 + 9, 40);
	all_out(w, 1);
	if (swapoff(device))
		skip("swapoff %s: %s", device, strerror(errno));
	bool empty = true;

	for (int i = 0; i < 3; i++)
		empty = empty && status_value(w->a[i].pid, "VmSwap") <= counter_slack() * 4;
	account(w);
	verify(w);
	swapon(device, 0);
	must(empty, "after swapoff somebody still has swap");
	verify_deep(w);
	world_end(w);
}

void cases_swap(void)
{
	static const char *const first[] = {"read",	"write",  "parent-writes",
					    "dontneed", "munmap", "killed"};
	static const int layouts[] = { L_ONE, L_HOLES, L_HEAP };
	char name[72];

	for (int l = 0; l < 3; l++) {
		for (int i = 0; i < 6; i++) {
			snprintf(name, sizeof(name), "swap/%s/%s", first[i], layout_name[layouts[l]]);
			add(name, before_fork, NEED_SWAP, i, layouts[l], 0);
		}
		snprintf(name, sizeof(name), "swap/rounds/%s", layout_name[layouts[l]]);
		add(name, swap_rounds, NEED_SWAP, layouts[l], 0, 0);
		snprintf(name, sizeof(name), "swap/reclaim/%s", layout_name[layouts[l]]);
		add(name, reclaim, NEED_SWAP | NEED_ROOT, layouts[l], 0, 0);
		snprintf(name, sizeof(name), "swap/swapoff/%s", layout_name[layouts[l]]);
		add(name, swap_off, NEED_SWAP | NEED_ROOT | NEED_GUEST, layouts[l], 0, 0);
	}
	add("swap/under-limit", under_limit, NEED_SWAP | NEED_ROOT, 0, 0, 0);
	add("limit/oom-1MB", oom, NEED_ROOT, 1, 0, 0);
	add("limit/oom-5MB", oom, NEED_ROOT, 5, 0, 0);
	add("limit/oom-20MB", oom, NEED_ROOT, 20, 0, 0);
}
