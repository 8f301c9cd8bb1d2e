// SPDX-License-Identifier: GPL-2.0-only
// Operations that change an actor's memory and its model alike.
#include "torture.h"

uint64_t new_key(struct world *w)
{
	uint64_t k = mix(atomic_fetch_add(&w->next_key, 1));

	return k ? k : 1;
}

int prot_bits(int prot)
{
	return prot == P_RW ? PROT_READ | PROT_WRITE : prot == P_READ ? PROT_READ : PROT_NONE;
}

void model_set(struct world *w, int a, long p, long n, int prot, uint64_t key)
{
	for (long i = p; i < p + n; i++)
		w->a[a].page[i] = (struct page_model){ .key = key, .prot = (uint8_t)prot, .flags = F_EVER };
}

void model_new_keys(struct world *w, int a, long p, long n)
{
	for (long i = p; i < p + n; i++) {
		struct page_model *m = &w->a[a].page[i];

		if (m->prot == P_RW)
			m->key = new_key(w), m->flags &= ~F_MAYZERO;
	}
}

bool model_mapped(const struct world *w, int a, long p, long n)
{
	for (long i = p; i < p + n; i++)
		if (w->a[a].page[i].prot == P_UNMAPPED)
			return false;
	return true;
}

void m_map(struct world *w, int a, long p, long n, int prot)
{
	long r = actor_sys(w, a, SYS_mmap, (long)at(w, p), n * (long)PAGE, prot_bits(prot),
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);

	must(r == (long)at(w, p), "mmap of %ld pages at page %ld by actor %d: %s", n, p, a,
	     strerror((int)-r));
	/* Whether a page is huge must not depend on the machine's settings. */
	actor_sys(w, a, SYS_madvise, (long)at(w, p), n * (long)PAGE, MADV_NOHUGEPAGE);
	model_set(w, a, p, n, prot, 0);
}

void m_unmap(struct world *w, int a, long p, long n)
{
	long r = actor_sys(w, a, SYS_munmap, (long)at(w, p), n * (long)PAGE);

	must(r == 0, "munmap of %ld pages at page %ld by actor %d: %s", n, p, a, strerror((int)-r));
	model_set(w, a, p, n, P_UNMAPPED, 0);
}

void m_protect(struct world *w, int a, long p, long n, int prot)
{
	long r = actor_sys(w, a, SYS_mprotect, (long)at(w, p), n * (long)PAGE, prot_bits(prot));

	must(r == 0, "mprotect of %ld pages at page %ld by actor %d: %s", n, p, a, strerror((int)-r));
	for (long i = p; i < p + n; i++)
		w->a[a].page[i].prot = (uint8_t)prot;
}

void m_write(struct world *w, int a, long p, long n)
{
	model_new_keys(w, a, p, n);
	on(w, a, do_write, p, n);
}

void m_read(struct world *w, int a, long p, long n)
{
	on(w, a, do_read, p, n);
}

long m_madvise_may(struct world *w, int a, long p, long n, int advice)
{
	return actor_sys(w, a, SYS_madvise, (long)at(w, p), n * (long)PAGE, advice);
}

void m_madvise(struct world *w, int a, long p, long n, int advice)
{
	long r = m_madvise_may(w, a, p, n, advice);

	if (r == -EINVAL)
		skip("madvise %d is not known to this kernel", advice);
	must(r == 0, "madvise %d of %ld pages at page %ld by actor %d: %s", advice, n, p, a,
	     strerror((int)-r));
	for (long i = p; i < p + n; i++) {
		struct page_model *m = &w->a[a].page[i];

		if (advice == MADV_DONTFORK)
			m->flags |= F_DONTFORK;
		else if (advice == MADV_DOFORK)
			m->flags &= ~F_DONTFORK;
		else if (advice == MADV_WIPEONFORK)
			m->flags |= F_WIPE;
		else if (advice == MADV_KEEPONFORK)
			m->flags &= ~F_WIPE;
	}
}

void m_dontneed(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_DONTNEED);
	for (long i = p; i < p + n; i++)
		w->a[a].page[i].key = 0, w->a[a].page[i].flags &= ~F_MAYZERO;
}

void m_free(struct world *w, int a, long p, long n)
{
	m_madvise(w, a, p, n, MADV_FREE);
	for (long i = p; i < p + n; i++)
		w->a[a].page[i].flags |= F_MAYZERO;
}

void model_move(struct world *w, int a, long from, long n, long to, bool keep)
{
	for (long i = 0; i < n; i++) {
		struct page_model *s = &w->a[a].page[from + i], *d = &w->a[a].page[to + i];

		*d = *s;
		if (keep)
			s->key = 0, s->flags &= ~F_MAYZERO;
		else
			*s = (struct page_model){ .prot = P_UNMAPPED, .flags = F_EVER };
	}
}

/* mremap needs one VMA: the caller sees to it that the range is one. */
void m_move(struct world *w, int a, long from, long n, long to, int extra_flags)
{
	long size = n * (long)PAGE;
	long r = actor_sys(w, a, SYS_mremap, (long)at(w, from), size, size,
			   MREMAP_MAYMOVE | MREMAP_FIXED | extra_flags, (long)at(w, to));

	must(r == (long)at(w, to), "mremap of %ld pages from page %ld to %ld by actor %d: %s", n,
	     from, to, a, strerror((int)-r));
	model_move(w, a, from, n, to, extra_flags != 0);
}
