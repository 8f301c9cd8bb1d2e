// SPDX-License-Identifier: GPL-2.0-only
// References to pages taken around a fork: vmsplice (the class of CVE-2020-29374) and io_uring's
// registered buffers. A reader of the reference must see what was there when it was taken, never
// what another process wrote later.
#include "torture.h"

/* The pipe is made by actor 0 before any fork, so that all actors have it. */
static long do_pipe(struct world *w, int self, const long *a)
{
	int *fd = (int *)w->scratch;

	(void)self, (void)a;
	return pipe(fd) ? -errno : 0;
}

static long do_splice(struct world *w, int self, const long *a)
{
	struct iovec v = { at(w, a[0]), PAGE };

	(void)self;
	ssize_t n = syscall(SYS_vmsplice, ((int *)w->scratch)[1], &v, 1, 0);

	return n < 0 ? -errno : n == (ssize_t)PAGE ? 0 : -EIO;
}

static long do_pipe_holds(struct world *w, int self, const long *a)
{
	static char page[PAGE];
	ssize_t n = read(((int *)w->scratch)[0], page, PAGE);

	(void)self;
	if (n != (ssize_t)PAGE)
		return -EIO;
	return page_is(page, (uint64_t)a[0]) ? 1 : 0;
}

static void pipe_must_hold(struct world *w, int reader, uint64_t key)
{
	long r = on(w, reader, do_pipe_holds, (long)key);

	must(r >= 0, "the pipe cannot be read: %s", strerror((int)-r));
	must(r == 1, "the pipe shows contents written after the splice, expected those before");
}

static void splice_page(struct world *w, int a, long p)
{
	long r = on(w, a, do_splice, p);

	must(r == 0, "vmsplice by actor %d: %s", a, strerror((int)-r));
}

enum { LET_UNMAP, LET_DONTNEED, LET_UNMAP_TABLE, LET_KEEP, LET_EXIT, LET_COUNT };
static const char *const let_name[] = { "unmap", "dontneed", "unmap-table", "keep", "exit" };

static void let_go(struct world *w, int a, int how)
{
	switch (how) {
	case LET_UNMAP: m_unmap(w, a, T2 + 5, 1); break;
	case LET_DONTNEED: m_dontneed(w, a, T2 + 5, 1); break;
	case LET_UNMAP_TABLE: m_unmap(w, a, T2, TP); break;
	case LET_EXIT: actor_end(w, a); break;
	}
}

/* a[0]: who splices after the fork (0 parent, 1 child); a[1] how it lets go of its page; then the
 * other one writes. */
static void splice_after(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	int who = (int)k->a[0], other = 1 - who;

	must(on(w, 0, do_pipe, 0) == 0, "pipe");
	m_fork(w, 0);
	uint64_t key = w->a[who].page[T2 + 5].key;

	splice_page(w, who, T2 + 5);
	let_go(w, who, (int)k->a[1]);
	m_write(w, other, T2 + 5, 1);
	m_write(w, other, T2, 20);
	pipe_must_hold(w, other, key);
	verify_deep(w);
	world_end(w);
}

/* The parent splices before the fork; the child's writes must not reach the pipe. */
static void splice_before(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	uint64_t key = w->a[0].page[T2 + 5].key;

	must(on(w, 0, do_pipe, 0) == 0, "pipe");
	splice_page(w, 0, T2 + 5);
	m_fork(w, 0);
	let_go(w, 0, (int)k->a[1]);
	m_write(w, 1, T2 + 5, 1);
	m_write(w, 1, T2, TP);
	pipe_must_hold(w, 1, key);
	verify_deep(w);
	world_end(w);
}

/* Splices in a grandchild while both its ancestors write. */
static void splice_generations(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	must(on(w, 0, do_pipe, 0) == 0, "pipe");
	m_fork(w, 0);
	m_fork(w, 1);
	uint64_t key = w->a[2].page[T2 + 5].key;

	splice_page(w, 2, T2 + 5);
	m_unmap(w, 2, T1, 3 * TP);
	actor_end(w, 2);
	actor_end(w, 1);
	m_write(w, 0, T1, 3 * TP);
	pipe_must_hold(w, 0, key);
	verify_deep(w);
	world_end(w);
}

#define RING_PAGES 40
static struct uring ring;	/* of an actor */

static long do_register(struct world *w, int self, const long *a)
{
	(void)self;
	int r = uring_open(&ring);

	return r ? r : uring_register(&ring, at(w, a[0]), RING_PAGES * PAGE);
}

/* The device reads the buffer: what it finds must be what this process has there. */
static long do_device_reads(struct world *w, int self, const long *a)
{
	static char page[PAGE];
	int fd = memfd_create("torture", MFD_CLOEXEC);
	long n = uring_fixed(&ring, true, fd, at(w, a[0]), RING_PAGES * PAGE, 0);

	if (n != (long)(RING_PAGES * PAGE))
		return n < 0 ? n : -EIO;
	for (long i = 0; i < RING_PAGES; i++)
		if (pread(fd, page, PAGE, i * (off_t)PAGE) != (ssize_t)PAGE ||
		    !page_is(page, w->a[self].page[a[0] + i].key))
			return -EILSEQ;
	close(fd);
	return 0;
}

/* The device writes the buffer: pages as the model says now. */
static long do_device_writes(struct world *w, int self, const long *a)
{
	static char page[PAGE];
	int fd = memfd_create("torture", MFD_CLOEXEC);

	for (long i = 0; i < RING_PAGES; i++) {
		fill_page(page, w->a[self].page[a[0] + i].key);
		if (pwrite(fd, page, PAGE, i * (off_t)PAGE) != (ssize_t)PAGE)
			return -errno;
	}
	long n = uring_fixed(&ring, false, fd, at(w, a[0]), RING_PAGES * PAGE, 0);

	close(fd);
	return n == (long)(RING_PAGES * PAGE) ? 0 : n < 0 ? n : -EIO;
}

static void device_round(struct world *w, int a, long p)
{
	long r = on(w, a, do_device_reads, p);

	must(r == 0, "the device does not read from the buffer what actor %d has there: %s", a,
	     strerror((int)-r));
	model_new_keys(w, a, p, RING_PAGES);
	r = on(w, a, do_device_writes, p);
	must(r == 0, "a device's write into the buffer of actor %d: %s", a, strerror((int)-r));
	verify(w);	/* the writes are in this actor's memory and in nobody else's */
}

static void register_buffer(struct world *w, int a, long p)
{
	long r = on(w, a, do_register, p);

	if (r == -ENOSYS || r == -EPERM)
		skip("this kernel has no io_uring (or kernel.io_uring_disabled)");
	must(r == 0, "io_uring and a registered buffer: %s", strerror((int)-r));
}

/* a[0]: registered by 0 the parent before the fork, 1 the parent after it, 2 the child after it. */
static void registered(const struct kase *k)
{
	struct world *w = layout_world((int)k->a[1]);
	int owner = k->a[0] == 2;
	long p = T2 - 10;

	if (k->a[0] == 0)
		register_buffer(w, 0, p);
	m_fork(w, 0);
	if (k->a[0])
		register_buffer(w, owner, p);
	for (int i = 0; i < 3; i++) {
		device_round(w, owner, p);
		m_write(w, 1 - owner, p, RING_PAGES / 2);
		device_round(w, owner, p);
		m_write(w, owner, p + 5, RING_PAGES / 2);
		verify(w);
		device_round(w, owner, p);
		int more = m_fork(w, i == 2 ? 1 - owner : owner);

		verify(w);
		device_round(w, owner, p);
		m_write(w, more, p, RING_PAGES);
		device_round(w, owner, p);
	}
	actor_end(w, 1 - owner);
	device_round(w, owner, p);
	verify_deep(w);
	account(w);
	world_end(w);
}

void cases_gup(void)
{
	static const char *const when[] = { "before", "after", "child" };
	char name[72];

	for (int who = 0; who < 2; who++)
		for (int how = 0; how < LET_COUNT; how++) {
			snprintf(name, sizeof(name), "gup/vmsplice-%s/%s", who ? "child" : "parent", let_name[how]);
			add(name, splice_after, 0, who, how, 0);
		}
	for (int how = 0; how < LET_COUNT; how++) {
		snprintf(name, sizeof(name), "gup/vmsplice-before-fork/%s", let_name[how]);
		add(name, splice_before, 0, 0, how, 0);
	}
	add("gup/vmsplice-generations", splice_generations, 0, 0, 0, 0);
	for (int i = 0; i < 3; i++)
		for (int layout = 0; layout < L_COUNT; layout += 2) {
			snprintf(name, sizeof(name), "gup/io_uring-%s/%s", when[i], layout_name[layout]);
			add(name, registered, 0, i, layout, 0);
		}
}
