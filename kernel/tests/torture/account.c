// SPDX-License-Identifier: GPL-2.0-only
// Accounting. The oracle is pagemap: which frame each actor maps where. How often a frame is mapped
// follows by counting over all actors, because nobody else maps memory of the arena; from it follow
// Rss, Pss, private, shared and the "mapped once" bit of every page. /proc is read while the actors
// wait; what the kernel moves by itself meanwhile (reclaim, migration) is met by looking again.
#include "torture.h"

static uint64_t entry[MAX_ACTORS][ARENA_PAGES];
static uint64_t frames[MAX_ACTORS * ARENA_PAGES];
static size_t frames_used;
static char finding[600];

#define DIFFER(...) (snprintf(finding, sizeof(finding), __VA_ARGS__), false)

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static bool anon_page(uint64_t e)
{
	return (e & PM_PRESENT) && !(e & PM_FILE) && (e & PM_PFN) != zero_page();
}

static void look(struct world *w)
{
	frames_used = 0;
	for (int i = 0; i < w->actors; i++) {
		if (!w->a[i].live)
			continue;
		size_t n = read_pagemap(w->a[i].pid, w->base, ARENA_PAGES, entry[i]);

		must(n == ARENA_PAGES, "pagemap of actor %d: %zu entries, expected %d", i, n, ARENA_PAGES);
		for (long p = 0; p < ARENA_PAGES; p++)
			if (anon_page(entry[i][p]))
				frames[frames_used++] = entry[i][p] & PM_PFN;
	}
	qsort(frames, frames_used, sizeof(frames[0]), by_value);
}

static long times_mapped(uint64_t frame)
{
	size_t low = 0, high = frames_used, n = 0;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (frames[middle] < frame)
			low = middle + 1;
		else
			high = middle;
	}
	while (low + n < frames_used && frames[low + n] == frame)
		n++;
	return (long)n;
}

static bool same(int i, const char *what, long found, long expected, long slack)
{
	if (found >= expected - slack && found <= expected + slack)
		return true;
	return DIFFER("actor %d: %s is %ld kB, expected %ld by pagemap (slack %ld)", i, what, found,
		      expected, slack);
}

/*
 * Pss is an exact share where no table is shared. Where one is, its users divide among them what
 * the table has of a page, and the tables that map the page divide the page: shares may be unequal,
 * but they add up to the memory there is.
 */
static struct { long found, exact, slack; } pss_sum;

static bool pss_ok(int i, const struct smaps *s, long exact)
{
	long slack = s->vmas + 1;

	if (!sharing_on())
		return same(i, "smaps Pss", s->pss, exact, slack);
	pss_sum.found += s->pss;
	pss_sum.exact += exact;
	pss_sum.slack += slack;
	if (s->pss >= s->private - slack && s->pss <= s->private + s->shared / 2 + slack)
		return true;
	return DIFFER("actor %d: smaps Pss is %ld kB with %ld kB private and %ld kB shared", i,
		      s->pss, s->private, s->shared);
}

static bool arena_ok(struct world *w, int i)
{
	long rss = 0, private = 0, swap = 0;
	double pss = 0;
	struct smaps s;

	for (long p = 0; p < ARENA_PAGES; p++) {
		uint64_t e = entry[i][p];

		swap += !!(e & PM_SWAP);
		if (!anon_page(e))
			continue;
		long times = times_mapped(e & PM_PFN);

		rss++;
		private += times == 1;
		pss += 4.0 / (double)times;
		if ((times == 1) != !!(e & PM_EXCLUSIVE))
			return DIFFER("actor %d, page %ld: pagemap's bit 56 is %d though %ld mappings exist", i, p,
				      !!(e & PM_EXCLUSIVE), times);
	}
	read_smaps(w->a[i].pid, w->base, w->base + ARENA_PAGES * PAGE, &s);
	return same(i, "smaps Rss", s.rss, rss * 4, 0) &&
	       same(i, "smaps Anonymous", s.anonymous, rss * 4, 0) &&
	       same(i, "smaps Private", s.private, private * 4, 0) &&
	       same(i, "smaps Shared", s.shared, (rss - private) * 4, 0) &&
	       same(i, "smaps Swap", s.swap, swap * 4, 0) && pss_ok(i, &s, (long)pss) &&
	       (s.referenced <= s.rss || same(i, "smaps Referenced", s.referenced, s.rss, 0));
}

/* 6.12: a counter of mm is a percpu_counter, printed without its processors' parts of up to batch
 * each. */
long counter_slack(void)
{
	int n = online_cpus();

	return (n * 2 > 32 ? n * 2 : 32) * n;
}

static bool process_ok(struct world *w, int i)
{
	static struct vma v[2048];
	static uint64_t e[16384];
	pid_t pid = w->a[i].pid;
	int n = read_maps(pid, v, 2048);
	long anon = 0, swap = 0, slack = counter_slack() * 4;

	for (int k = 0; k < n; k++) {
		size_t pages = (v[k].end - v[k].start) / PAGE;

		if (!strncmp(v[k].name, "[v", 2))
			continue;	/* [vvar], [vdso], [vsyscall]: no anonymous memory */
		for (size_t done = 0; done < pages; done += 16384) {
			size_t part = pages - done < 16384 ? pages - done : 16384;
			size_t got = read_pagemap(pid, (void *)(v[k].start + done * PAGE), part, e);

			for (size_t q = 0; q < got; q++)
				anon += anon_page(e[q]), swap += !!(e[q] & PM_SWAP);
		}
	}
	return same(i, "status RssAnon", status_value(pid, "RssAnon"), anon * 4, slack) &&
	       same(i, "status VmSwap", status_value(pid, "VmSwap"), swap * 4, slack);
}

static bool statm_ok(struct world *w, int i)
{
	char path[40], text[200];
	long size, resident, shared;
	pid_t pid = w->a[i].pid;

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	must(read_file(path, text, sizeof(text)) > 0, "%s cannot be read", path);
	must(sscanf(text, "%ld %ld %ld", &size, &resident, &shared) == 3, "%s: '%s'", path, text);
	return same(i, "statm resident", resident * 4, status_value(pid, "VmRSS"),
		    3 * counter_slack() * 4);
}

static bool account_once(struct world *w)
{
	look(w);
	memset(&pss_sum, 0, sizeof(pss_sum));
	for (int i = 0; i < w->actors; i++)
		if (w->a[i].live && !(arena_ok(w, i) && process_ok(w, i) && statm_ok(w, i)))
			return false;
	return labs(pss_sum.found - pss_sum.exact) <= pss_sum.slack ||
	       DIFFER("the Pss of all is %ld kB, their memory %ld kB", pss_sum.found, pss_sum.exact);
}

void account(struct world *w)
{
	if (!zero_page())
		return;		/* without root there are no frame numbers to count */
	for (int turn = 0; turn < 8; turn++) {
		if (account_once(w))
			return;
		usleep(20000);
	}
	fail("%s", finding);
}
