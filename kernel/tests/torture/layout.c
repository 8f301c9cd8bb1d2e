// SPDX-License-Identifier: GPL-2.0-only
// The memory actor 0 begins with, and the parts of it that cases act upon. Tables 1 to 3 of the
// arena are used, the rest is room to move to:
//
//	one       |=========|=========|=========|	one VMA of three whole tables
//	stripes   |--==--==-|==--==--=|=--==--==|	VMAs of 16 pages, so that no table can be shared
//	straddle  |     ====|=========|====     |	one VMA, middle to middle: only table 2 can be shared
//	holes     |=.=0=.=0=|...               	|	as one, with pages never touched (.) or only read (0)
//	heap      as one, made by brk; thp: as one, huge pages allowed
#include "torture.h"

const char *const layout_name[] = { "one", "stripes", "straddle", "holes", "heap", "thp" };
const char *const extent_name[] = { "part", "table", "border", "all" };

bool layout_shares(int layout)
{
	return layout != L_STRIPES && layout != L_THP;
}

void layout_span(int layout, long *first, long *count)
{
	*first = layout == L_STRADDLE ? T1 + TP / 2 : T1;
	*count = layout == L_STRADDLE ? 2 * TP : 3 * TP;
}

void layout_extent(int layout, int extent, long *first, long *count)
{
	layout_span(layout, first, count);
	switch (extent) {
	case X_PART:
		*first = T2 + 200;
		*count = 23;
		break;
	case X_TABLE:
		*first = T2;
		*count = TP;
		break;
	case X_BORDER:
		*first = T2 - 37;
		*count = TP / 2;
		break;
	}
}

static void stripes(struct world *w)
{
	for (long p = T1; p < T4; p += 48) {
		long n = p + 16 <= T4 ? 16 : T4 - p;

		m_madvise(w, 0, p, n, MADV_DONTDUMP);
		if (p + 32 <= T4)
			m_protect(w, 0, p + 16, 16, P_READ);
	}
}

static void holes(struct world *w)
{
	m_map(w, 0, T1, 3 * TP, P_RW);
	for (long p = T1; p < T4; p++) {
		if (p % 4 == 1)
			m_write(w, 0, p, 1);
		else if (p % 4 == 3)
			m_read(w, 0, p, 1);
	}
	m_write(w, 0, T2 + 200, 40);
}

/* The heap's top is moved far up; the arena is the 2 MB aligned part of it. */
static long do_heap(struct world *w, int self, const long *a)
{
	(void)self, (void)a;
	unsigned long now = (unsigned long)syscall(SYS_brk, 0);
	unsigned long base = (now + TABLE - 1) & ~(TABLE - 1);
	unsigned long top = base + T4 * PAGE;

	if ((unsigned long)syscall(SYS_brk, top) != top)
		return -ENOMEM;
	w->base = (char *)base;
	return madvise((void *)base, T4 * PAGE, MADV_NOHUGEPAGE) ? -errno : 0;
}

struct world *layout_world(int layout)
{
	struct world *w = world_new();
	long first, count;

	layout_span(layout, &first, &count);
	if (layout == L_HOLES) {
		holes(w);
		return w;
	}
	if (layout == L_HEAP) {
		must(on(w, 0, do_heap, 0) == 0, "brk does not move");
		model_set(w, 0, 0, T4, P_RW, 0);
	} else {
		m_map(w, 0, first, count, P_RW);
	}
	if (layout == L_THP)
		m_madvise_may(w, 0, first, count, MADV_HUGEPAGE);
	m_write(w, 0, first, count);
	if (layout == L_STRIPES)
		stripes(w);
	return w;
}
