// SPDX-License-Identifier: GPL-2.0-only
// Actions of the matrix: calls that change the map or what is in it.
#include "torture.h"

static void act_read(struct world *w, int a, long p, long n)
{
	m_read(w, a, p, n);
}

static void act_touch(struct world *w, int a, long p, long n)
{
	m_write(w, a, p, 1);
	m_write(w, a, p + n - 1, 1);
}

static void act_every_other(struct world *w, int a, long p, long n)
{
	for (long i = p; i < p + n; i += n / 16 + 1)
		m_write(w, a, i, 1);
}

static void act_unmap(struct world *w, int a, long p, long n)
{
	m_unmap(w, a, p, n);
}

static void act_unmap_holes(struct world *w, int a, long p, long n)
{
	for (long i = p; i < p + n; i += n / 8 + 2)
		m_unmap(w, a, i, 1);
}

static void act_map_over(struct world *w, int a, long p, long n)
{
	m_map(w, a, p, n, P_RW);
	m_write(w, a, p + n / 2, 1);
}

static void act_map_hole(struct world *w, int a, long p, long n)
{
	m_unmap(w, a, p, n);
	m_map(w, a, p + n / 3, n / 3, P_RW);
	m_write(w, a, p + n / 3, n / 6 + 1);
}

static void act_none(struct world *w, int a, long p, long n)
{
	m_protect(w, a, p, n, P_NONE);
}

static void act_readonly(struct world *w, int a, long p, long n)
{
	m_protect(w, a, p, n, P_READ);
}

static void act_readwrite(struct world *w, int a, long p, long n)
{
	m_protect(w, a, p, n, P_RW);
	m_write(w, a, p, 2);
}

static void act_flip(struct world *w, int a, long p, long n)
{
	m_protect(w, a, p, n, P_NONE);
	m_protect(w, a, p, n, P_RW);
	m_write(w, a, p + n - 1, 1);
}

static void act_move_aligned(struct world *w, int a, long p, long n)
{
	m_move(w, a, p, n, p + 3 * TP, 0);
	m_write(w, a, p + 3 * TP, 1);
}

static void act_move_unaligned(struct world *w, int a, long p, long n)
{
	m_move(w, a, p, n, p + 3 * TP + 5, 0);
	m_write(w, a, p + 3 * TP + 5, 1);
}

static void act_move_and_back(struct world *w, int a, long p, long n)
{
	m_move(w, a, p, n, p + 3 * TP, 0);
	m_move(w, a, p + 3 * TP, n, p, 0);
}

static void act_move_keep(struct world *w, int a, long p, long n)
{
	m_move(w, a, p, n, p + 3 * TP, MREMAP_DONTUNMAP);
	m_write(w, a, p, 1);
}

static void act_shrink(struct world *w, int a, long p, long n)
{
	long keep = n / 2 + 1;
	long r = actor_sys(w, a, SYS_mremap, (long)at(w, p), n * (long)PAGE, keep * (long)PAGE, 0, 0);

	must(r == (long)at(w, p), "mremap that shrinks: %ld, expected the old address", r);
	model_set(w, a, p + keep, n - keep, P_UNMAPPED, 0);
}

/* Grows the VMA beyond its end, whatever the extent: first in place, then by moving it. */
static void act_grow(struct world *w, int a, long p, long n)
{
	long end = p;

	while (end < ARENA_PAGES && w->a[a].page[end].prot != P_UNMAPPED)
		end++;
	long room = ARENA_PAGES - end;

	if (n > room)
		n = room;
	long r = actor_sys(w, a, SYS_mremap, (long)at(w, end - 20), 20 * (long)PAGE,
			   (20 + n) * (long)PAGE, 0, 0);

	must(r == (long)at(w, end - 20), "mremap that grows: %ld, expected the old address", r);
	model_set(w, a, end, n, P_RW, 0);
	m_write(w, a, end, n / 2 + 1);
}

static void act_lock(struct world *w, int a, long p, long n)
{
	long r = actor_sys(w, a, SYS_mlock, (long)at(w, p), n * (long)PAGE);

	must(r == 0, "mlock by actor %d: %s", a, strerror((int)-r));
}

static void act_lock_onfault(struct world *w, int a, long p, long n)
{
	long r = actor_sys(w, a, SYS_mlock2, (long)at(w, p), n * (long)PAGE, 1 /* MLOCK_ONFAULT */);

	must(r == 0, "mlock2 by actor %d: %s", a, strerror((int)-r));
	m_write(w, a, p, 1);
}

static void act_lock_unlock(struct world *w, int a, long p, long n)
{
	act_lock(w, a, p, n);
	m_write(w, a, p, 1);
	long r = actor_sys(w, a, SYS_munlock, (long)at(w, p), n * (long)PAGE);

	must(r == 0, "munlock by actor %d: %s", a, strerror((int)-r));
}

static void act_lockall(struct world *w, int a, long p, long n)
{
	long r = actor_sys(w, a, SYS_mlockall, MCL_CURRENT);

	must(r == 0, "mlockall by actor %d: %s", a, strerror((int)-r));
	m_write(w, a, p, n / 2 + 1);
	actor_sys(w, a, SYS_munlockall, 0);
}

static long last_node(void)
{
	char text[64];

	if (read_file("/sys/devices/system/node/has_memory", text, sizeof(text)) <= 0)
		return 0;
	const char *last = strrchr(text, '-') ? strrchr(text, '-') : strrchr(text, ',');

	return strtol(last ? last + 1 : text, NULL, 10);
}

static long do_mbind(struct world *w, int self, const long *a)
{
	(void)self;
	unsigned long nodes = 1UL << a[2];

	return syscall(SYS_mbind, at(w, a[0]), a[1] * PAGE, 2 /* MPOL_BIND */, &nodes, 64, a[3])
		       ? -errno
		       : 0;
}

static void act_mbind(struct world *w, int a, long p, long n)
{
	for (long flags = 1 << 1; flags <= 1 << 2; flags <<= 1) {	/* MPOL_MF_MOVE, MPOL_MF_MOVE_ALL */
		long r = on(w, a, do_mbind, p, n, last_node(), flags);

		if (r == -ENOSYS)
			skip("this kernel has no mbind");
		must(r == 0 || r == -EIO, "mbind by actor %d: %s", a, strerror((int)-r));
	}
	m_write(w, a, p + n / 2, 1);
}

static long do_move_pages(struct world *w, int self, const long *a)
{
	(void)self;
	void *pages[64];
	int nodes[64], status[64];
	int n = a[1] < 64 ? (int)a[1] : 64;

	for (int i = 0; i < n; i++)
		pages[i] = at(w, a[0] + i), nodes[i] = (int)a[2];
	return syscall(SYS_move_pages, 0, n, pages, nodes, status, 1 << a[3]) < 0 ? -errno : 0;
}

static void act_move_pages(struct world *w, int a, long p, long n)
{
	if (last_node() == 0)
		skip("one memory node only (boot with numa=fake=2)");
	for (long how = 1; how <= 2; how++)
		for (long node = last_node(); node >= 0; node--)
			on(w, a, do_move_pages, p, n, node, how);
}

static void act_migrate_pages(struct world *w, int a, long p, long n)
{
	unsigned long *mask = (unsigned long *)w->scratch;

	if (last_node() == 0)
		skip("one memory node only (boot with numa=fake=2)");
	mask[0] = 1, mask[1] = 1UL << last_node();
	actor_sys(w, a, SYS_migrate_pages, w->a[a].pid, 64, (long)mask, (long)(mask + 1));
	m_write(w, a, p, n / 2 + 1);
	actor_sys(w, a, SYS_migrate_pages, w->a[a].pid, 64, (long)(mask + 1), (long)mask);
}

static void act_seal(struct world *w, int a, long p, long n)
{
	long r = actor_sys(w, a, 462 /* mseal */, (long)at(w, p), n * (long)PAGE, 0);

	if (r == -ENOSYS || r == -EPERM)
		skip("this kernel has no mseal");
	must(r == 0, "mseal by actor %d: %s", a, strerror((int)-r));
	r = actor_sys(w, a, SYS_munmap, (long)at(w, p), n * (long)PAGE);
	must(r == -EPERM, "munmap of sealed memory: %ld, expected EPERM", r);
	m_write(w, a, p, 1);
}

static void act_pkey(struct world *w, int a, long p, long n)
{
	long key = actor_sys(w, a, SYS_pkey_alloc, 0, 0);

	if (key < 0)
		skip("no protection keys on this machine");
	long r = actor_sys(w, a, SYS_pkey_mprotect, (long)at(w, p), n * (long)PAGE,
			   PROT_READ | PROT_WRITE, key);

	must(r == 0, "pkey_mprotect by actor %d: %s", a, strerror((int)-r));
	for (long i = p; i < p + n; i++)
		w->a[a].page[i].prot = P_RW;
	m_write(w, a, p, n / 2 + 1);
	m_read(w, a, p, n);
	/* Back to the common key: a handler that jumps out, as those of model.c, leaves other keys
	 * forbidden. */
	r = actor_sys(w, a, SYS_pkey_mprotect, (long)at(w, p), n * (long)PAGE, PROT_READ | PROT_WRITE, 0);
	must(r == 0, "pkey_mprotect back by actor %d: %s", a, strerror((int)-r));
	actor_sys(w, a, SYS_pkey_free, key);
}

static void act_name(struct world *w, int a, long p, long n)
{
	strcpy(w->scratch, "torture");
	actor_sys(w, a, SYS_prctl, 0x53564d41 /* PR_SET_VMA */, 0, (long)at(w, p), n * (long)PAGE,
		  (long)w->scratch);
	m_write(w, a, p + 1, 1);
}

static void act_msync(struct world *w, int a, long p, long n)
{
	actor_sys(w, a, SYS_msync, (long)at(w, p), n * (long)PAGE, MS_SYNC | MS_INVALIDATE);
}

const struct action actions_memory[] = {
	{ "write", m_write, 0, 0 },
	{ "touch", act_touch, 0, 0 },
	{ "scattered", act_every_other, 0, 0 },
	{ "read", act_read, 0, 0 },
	{ "munmap", act_unmap, 0, 0 },
	{ "munmap-holes", act_unmap_holes, 0, 0 },
	{ "map-over", act_map_over, 0, 0 },
	{ "map-hole", act_map_hole, 0, 0 },
	{ "protect-none", act_none, 0, 0 },
	{ "protect-read", act_readonly, 0, 0 },
	{ "protect-rw", act_readwrite, 0, 0 },
	{ "protect-flip", act_flip, 0, 0 },
	{ "before-protect-read", act_readonly, A_BEFORE | A_NO_SHARE, 0 },
	{ "before-munmap", act_unmap, A_BEFORE | A_NO_SHARE, 0 },
	{ "move-aligned", act_move_aligned, A_ONE_VMA, 0 },
	{ "move-unaligned", act_move_unaligned, A_ONE_VMA, 0 },
	{ "move-back", act_move_and_back, A_ONE_VMA, 0 },
	{ "move-keep", act_move_keep, A_ONE_VMA, 0 },
	{ "before-move", act_move_aligned, A_ONE_VMA | A_BEFORE | A_NO_SHARE, 0 },
	{ "shrink", act_shrink, A_ONE_VMA, 0 },
	{ "grow", act_grow, A_ONE_VMA, 0 },
	{ "mlock", act_lock, 0, NEED_ROOT },
	{ "mlock-onfault", act_lock_onfault, 0, NEED_ROOT },
	{ "mlock-munlock", act_lock_unlock, 0, NEED_ROOT },
	{ "mlockall", act_lockall, 0, NEED_ROOT },
	{ "before-mlock", act_lock, A_BEFORE | A_NO_SHARE, NEED_ROOT },
	{ "mbind", act_mbind, 0, NEED_ROOT },
	{ "move-pages", act_move_pages, 0, NEED_ROOT },
	{ "migrate-pages", act_migrate_pages, 0, NEED_ROOT },
	{ "mseal", act_seal, 0, 0 },
	{ "pkey", act_pkey, 0, 0 },
	{ "vma-name", act_name, 0, 0 },
	{ "msync", act_msync, 0, 0 },
	{ 0 },
};
