// SPDX-License-Identifier: GPL-2.0-only
// Actions of the matrix: madvise in all its kinds, and the marks of soft-dirty and pagemap.
#include "torture.h"
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static void act_free(struct world *w, int a, long p, long n)
{
	m_free(w, a, p, n);
	m_write(w, a, p + n / 2, 1);
}

static void act_pageout(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_PAGEOUT);
}

static void act_cold(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_COLD);
}

static void act_willneed(struct world *w, int a, long p, long n)
{
	m_madvise_may(w, a, p, n, MADV_PAGEOUT);
	m_madvise_may(w, a, p, n, MADV_WILLNEED);	/* EBADF without CONFIG_SWAP */
}

static void act_collapse(struct world *w, int a, long p, long n)
{
	m_madvise_may(w, a, p, n, MADV_HUGEPAGE);
	m_madvise_may(w, a, p, n, MADV_COLLAPSE);
	m_madvise_may(w, a, T2, TP, MADV_COLLAPSE);
	m_write(w, a, p, 1);
}

static void act_hugepage(struct world *w, int a, long p, long n)
{
	m_madvise_may(w, a, p, n, MADV_HUGEPAGE);
	m_dontneed(w, a, p, n);
	m_write(w, a, p, n);
}

static void act_dontfork(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_DONTFORK);
}

static void act_dontfork_undone(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_DONTFORK);
	m_madvise(w, a, p, n, MADV_DOFORK);
}

static void act_wipe(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_WIPEONFORK);
}

static void act_wipe_undone(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_WIPEONFORK);
	m_madvise(w, a, p, n, MADV_KEEPONFORK);
}

static void act_mergeable(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_MERGEABLE);
	m_write(w, a, p, 1);
	m_madvise(w, a, p, n, MADV_UNMERGEABLE);
}

static void act_populate_read(struct world *w, int a, long p, long n)
{
	m_madvise_may(w, a, p, n, MADV_POPULATE_READ);
}

static void act_populate_write(struct world *w, int a, long p, long n)
{
	m_madvise_may(w, a, p, n, MADV_POPULATE_WRITE);
}

static void act_dontdump(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_DONTDUMP);
	m_madvise(w, a, p + 1, n / 2, MADV_DODUMP);
}

static void act_dontneed_populate(struct world *w, int a, long p, long n)
{
	m_dontneed(w, a, p, n);
	m_madvise_may(w, a, p, n, MADV_POPULATE_WRITE);
	m_write(w, a, p, 1);
}

/* By another process: only what reclaims, for that is all process_madvise does to others. */
static void act_process_madvise(struct world *w, int a, long p, long n)
{
	static const int advice[] = { MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_COLLAPSE };
	struct iovec v = { at(w, p), (size_t)n * PAGE };

	for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++)
		syscall(SYS_process_madvise, w->a[a].pidfd, &v, 1, advice[i], 0);
}

static void clear_refs(const struct world *w, int a, const char *what)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", w->a[a].pid);
	long r = write_file(path, what);

	must(r == 0 || r == -EINVAL, "%s to %s: %s", what, path, strerror((int)-r));
}

static void act_clear_young(struct world *w, int a, long p, long n)
{
	clear_refs(w, a, "1");
	clear_refs(w, a, "2");
	clear_refs(w, a, "5");
	m_read(w, a, p, n / 2);
}

/* Bit 55 of pagemap: clear after clear_refs 4, set again by a write, and only for the writer. */
static void act_soft_dirty(struct world *w, int a, long p, long n)
{
	uint64_t e = 0;

	m_write(w, a, p, 1);
	read_pagemap(w->a[a].pid, at(w, p), 1, &e);
	if (!(e & PM_SOFT_DIRTY))
		skip("this kernel has no soft-dirty bits");
	clear_refs(w, a, "4");
	read_pagemap(w->a[a].pid, at(w, p), 1, &e);
	must(!(e & PM_SOFT_DIRTY), "actor %d, page %ld is soft-dirty right after clear_refs 4", a, p);
	m_write(w, a, p, n / 2 + 1);
	for (long i = p; i < p + n; i += n / 2 ? n / 2 : 1) {
		bool written = i <= p + n / 2 && w->a[a].page[i].prot == P_RW, is;

		read_pagemap(w->a[a].pid, at(w, i), 1, &e);
		is = !!(e & PM_SOFT_DIRTY);
		must(is == written || w->a[a].page[p + n - 1].key == 0,
		     "actor %d, page %ld: soft-dirty bit is %d, expected %d", a, i, is, written);
	}
}

struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof,
		returns;
};
struct scan_region { uint64_t start, end, categories; };
#define SCAN_IOCTL _IOC(_IOC_READ | _IOC_WRITE, 'f', 16, sizeof(struct scan_arg))
#include <sys/ioctl.h>

static long do_scan(struct world *w, int self, const long *a)
{
	(void)self;
	struct scan_region *r = (struct scan_region *)(w->scratch + self % 4 * 65536);
	struct scan_arg s = {.size = sizeof(s),
			     .start = (uintptr_t)at(w, a[0]),
			     .end = (uintptr_t)at(w, a[0] + a[1]),
			     .vec = (uintptr_t)r,
			     .vec_len = 2000,
			     .anyof = 8 | 16,
			     .returns = 8 | 16 | 32};
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	long n = ioctl(fd, SCAN_IOCTL, &s), pages = 0;

	if (n < 0)
		pages = -errno;
	for (long i = 0; i < n; i++)
		pages += (long)((r[i].end - r[i].start) / PAGE);
	close(fd);
	return pages;
}

static void act_scan(struct world *w, int a, long p, long n)
{
	static _Thread_local uint64_t e[ARENA_PAGES];
	long expected = 0, found = on(w, a, do_scan, p, n);

	if (found == -ENOTTY)
		skip("this kernel has no PAGEMAP_SCAN");
	read_pagemap(w->a[a].pid, at(w, p), (size_t)n, e);
	for (long i = 0; i < n; i++)
		expected += (e[i] & (PM_PRESENT | PM_SWAP)) != 0;
	must(found == expected, "PAGEMAP_SCAN by actor %d: %ld pages, expected %ld by pagemap", a,
	     found, expected);
}

static void act_mincore(struct world *w, int a, long p, long n)
{
	unsigned char *v = (unsigned char *)w->scratch + a % 4 * 65536;

	m_write(w, a, p, 1);
	long r = actor_sys(w, a, SYS_mincore, (long)at(w, p), n * (long)PAGE, (long)v);

	must(r == 0, "mincore by actor %d: %s", a, strerror((int)-r));
	must(w->a[a].page[p].prot != P_RW || (v[0] & 1) || swap_is_on(),
	     "actor %d: mincore says page %ld, just written, is not there", a, p);
}

static void act_soft_offline(struct world *w, int a, long p, long n)
{
	long done = 0;

	for (long i = p; i < p + n; i += n / 4 + 1)
		done += m_madvise_may(w, a, i, 1, 101 /* MADV_SOFT_OFFLINE */) == 0;
	if (!done)
		skip("no page could be taken offline (CONFIG_MEMORY_FAILURE?)");
}

const struct action actions_advice[] = {
	{ "dontneed", m_dontneed, 0, 0 },
	{ "dontneed-populate", act_dontneed_populate, 0, 0 },
	{ "free", act_free, 0, 0 },
	{ "before-free", act_free, A_BEFORE, 0 },
	{ "before-dontneed", m_dontneed, A_BEFORE, 0 },
	{ "pageout", act_pageout, 0, 0 },
	{ "before-pageout", act_pageout, A_BEFORE, 0 },
	{ "cold", act_cold, 0, 0 },
	{ "willneed", act_willneed, 0, 0 },
	{ "collapse", act_collapse, 0, 0 },
	{ "hugepage", act_hugepage, 0, 0 },
	{ "dontfork", act_dontfork, 0, 0 },
	{ "before-dontfork", act_dontfork, A_BEFORE | A_NO_SHARE, 0 },
	{ "before-dofork", act_dontfork_undone, A_BEFORE | A_NO_SHARE, 0 },
	{ "wipe", act_wipe, 0, 0 },
	{ "before-wipe", act_wipe, A_BEFORE | A_NO_SHARE, 0 },
	{ "before-keep", act_wipe_undone, A_BEFORE | A_NO_SHARE, 0 },
	{ "mergeable", act_mergeable, 0, 0 },
	{ "populate-read", act_populate_read, 0, 0 },
	{ "populate-write", act_populate_write, 0, 0 },
	{ "dontdump", act_dontdump, 0, 0 },
	{ "process-madvise", act_process_madvise, 0, 0 },
	{ "clear-young", act_clear_young, 0, 0 },
	{ "soft-dirty", act_soft_dirty, 0, 0 },
	{ "pagemap-scan", act_scan, 0, 0 },
	{ "mincore", act_mincore, 0, 0 },
	{ "soft-offline", act_soft_offline, 0, NEED_ROOT | NEED_GUEST },
	{ 0 },
};
