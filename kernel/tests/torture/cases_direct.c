// SPDX-License-Identifier: GPL-2.0-only
// O_DIRECT into and out of shared memory, around forks and in flight, by read, write and AIO.
#include "torture.h"
#include <linux/aio_abi.h>
#include <pthread.h>
#include <sched.h>

#define BLOCKS 64
static uint64_t block_key(long block) { return mix(0xd17ec7 + (uint64_t)block); }

static void file_name(char *path, size_t size)
{
	snprintf(path, size, "%s/torture-direct.%d", opt.dir, getpgrp());
}

/* A file of BLOCKS pages, opened with O_DIRECT and already unlinked; the descriptor is inherited.
 */
static int direct_file(void)
{
	char path[200];
	static char page[PAGE];

	file_name(path, sizeof(path));
	int plain = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

	must(plain >= 0, "%s: %s", path, strerror(errno));
	for (long i = 0; i < BLOCKS; i++) {
		fill_page(page, block_key(i));
		must(pwrite(plain, page, PAGE, i * (off_t)PAGE) == (ssize_t)PAGE, "%s: %s", path,
		     strerror(errno));
	}
	fsync(plain);
	int fd = open(path, O_RDWR | O_DIRECT);

	unlink(path);
	close(plain);
	if (fd < 0)
		skip("%s: no O_DIRECT on this file system (--dir)", opt.dir);
	return fd;
}

/* a[0] descriptor, a[1] page, a[2] count: blocks from 0 on. */
static long do_direct_read(struct world *w, int self, const long *a)
{
	(void)self;
	ssize_t n = pread((int)a[0], at(w, a[1]), (size_t)a[2] * PAGE, 0);

	return n == a[2] * (long)PAGE ? 0 : n < 0 ? -errno : -EIO;
}

static long do_direct_write(struct world *w, int self, const long *a)
{
	static char __attribute__((aligned(4096))) page[PAGE];
	ssize_t n = pwrite((int)a[0], at(w, a[1]), (size_t)a[2] * PAGE, 0);

	if (n != a[2] * (long)PAGE)
		return n < 0 ? -errno : -EIO;
	for (long i = 0; i < a[2]; i++)
		if (pread((int)a[0], page, PAGE, i * (off_t)PAGE) != (ssize_t)PAGE ||
		    !page_is(page, w->a[self].page[a[1] + i].key))
			return -EILSEQ;
	return 0;
}

static void direct_read(struct world *w, int a, int fd, long p, long n)
{
	long r = on(w, a, do_direct_read, fd, p, n);

	if (r == -EINVAL)
		skip("O_DIRECT is refused by the file system in %s (--dir)", opt.dir);
	must(r == 0, "O_DIRECT read by actor %d: %s", a, strerror((int)-r));
	for (long i = 0; i < n; i++)
		w->a[a].page[p + i].key = block_key(i), w->a[a].page[p + i].flags &= ~F_MAYZERO;
}

/* Reads and writes by parent and child in turn; a[0] 1: one read before the first fork already. */
static void direct(const struct kase *k)
{
	int fd = direct_file();
	struct world *w = layout_world((int)k->a[1]);

	if (k->a[0])
		direct_read(w, 0, fd, T2 - 200, 9);
	m_fork(w, 0);
	direct_read(w, 1, fd, T2 - 20, 40);
	verify(w);
	direct_read(w, 0, fd, T2 + 100, 30);
	verify(w);
	m_fork(w, 0);
	direct_read(w, 2, fd, T2 + 90, BLOCKS);
	direct_read(w, 0, fd, T1 + TP - 5, 10);
	verify(w);
	for (int i = 0; i < 3; i++) {
		long r = on(w, i, do_direct_write, fd, T2 + 95, BLOCKS / 2);

		must(r == 0, "O_DIRECT write by actor %d: %s", i, strerror((int)-r));
	}
	verify_deep(w);
	account(w);
	world_end(w);
}

struct reader { struct world *w; int fd; long page; _Atomic int stop, reads, wrong; };

static void *read_loop(void *argument)
{
	struct reader *r = argument;

	for (long block = 0; !atomic_load(&r->stop); block = (block + 7) % (BLOCKS - 8)) {
		ssize_t n = pread(r->fd, at(r->w, r->page), 8 * PAGE, block * (off_t)PAGE);

		for (long i = 0; i < 8; i++)
			if (n != 8 * (ssize_t)PAGE || !page_is(at(r->w, r->page + i), block_key(block + i)))
				atomic_fetch_add(&r->wrong, 1);
		atomic_fetch_add(&r->reads, 1);
	}
	return NULL;
}

/* A thread reads by O_DIRECT without end while its process forks: no read may get lost in a copy.
 */
static long do_fork_while_reading(struct world *w, int self, const long *a)
{
	struct reader r = { .w = w, .fd = (int)a[0], .page = T2 + 64 };
	pthread_t t;
	int bad = 0, status;

	if (pthread_create(&t, NULL, read_loop, &r))
		return -EAGAIN;
	for (long i = 0; i < a[1]; i++) {
		int before = atomic_load(&r.reads);
		pid_t pid = fork();

		if (pid == 0) {
			for (long p = T1; p < T4; p += 5)
				if ((p < T2 + 64 || p >= T2 + 72) && !page_is(at(w, p), w->a[self].page[p].key))
					_exit(1);
			fill_page(at(w, T2 + 65), 77);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
			bad++;
		while (atomic_load(&r.reads) == before)
			sched_yield();
	}
	atomic_store(&r.stop, 1);
	pthread_join(t, NULL);
	return bad * 1000 + atomic_load(&r.wrong);
}

static void fork_while_reading(const struct kase *k)
{
	int fd = direct_file();
	struct world *w = layout_world(L_ONE);

	(void)k;
	m_fork(w, 0);
	direct_read(w, 0, fd, T2 + 64, 8);
	long r = on(w, 0, do_fork_while_reading, fd, scaled(100));

	must(r == 0, "%ld children saw wrong contents, %ld reads got lost", r / 1000, r % 1000);
	for (long i = 0; i < 8; i++)
		w->a[0].page[T2 + 64 + i].prot = P_UNMAPPED,
				       w->a[0].page[T2 + 64 + i].flags =
					       0; /* whichever block came last */
	verify_deep(w);
	world_end(w);
}

/* AIO reads in flight at the time of the fork: the parent must get them, the child keeps its other
 * pages. */
static long do_aio(struct world *w, int self, const long *a)
{
	enum { N = 32 };
	static struct iocb cb[N], *list[N];
	static struct io_event events[N];
	aio_context_t context = 0;

	(void)self;
	if (syscall(SYS_io_setup, N, &context))
		return -errno;
	for (int i = 0; i < N; i++) {
		cb[i] = (struct iocb){.aio_fildes = (uint32_t)a[0],
				      .aio_lio_opcode = IOCB_CMD_PREAD,
				      .aio_buf = (uintptr_t)at(w, a[1] + i),
				      .aio_nbytes = PAGE,
				      .aio_offset = i * (long)PAGE};
		list[i] = &cb[i];
	}
	long n = syscall(SYS_io_submit, context, N, list);

	if (n != N)
		return n < 0 ? -errno : -EIO;
	pid_t pid = fork();

	if (pid == 0) {
		for (long p = T1; p < T4; p++)
			if ((p < a[1] || p >= a[1] + N) && !page_is(at(w, p), w->a[self].page[p].key))
				_exit(1);
		for (int i = 0; i < N; i++)
			fill_page(at(w, a[1] + i), 5);
		_exit(0);
	}
	int status = 1;

	if (syscall(SYS_io_getevents, context, N, N, events, NULL) != N)
		return -EIO;
	waitpid(pid, &status, 0);
	syscall(SYS_io_destroy, context);
	return status ? -ECHILD : 0;
}

static void aio(const struct kase *k)
{
	int fd = direct_file();
	struct world *w = layout_world(L_ONE);

	for (int i = 0; i < (int)scaled(20); i++) {
		long p = T2 - 16 + 40 * (i % 5);
		long r = on(w, 0, do_aio, fd, p);

		if (r == -ENOSYS || r == -EINVAL)
			skip("this kernel has no AIO, or %s no O_DIRECT", opt.dir);
		must(r == 0, "AIO reads in flight over a fork: %s",
		     r == -ECHILD ? "the child saw wrong contents" : strerror((int)-r));
		for (long b = 0; b < 32; b++)
			w->a[0].page[p + b].key = block_key(b);
		verify(w);
		if (i == 2)
			m_fork(w, 0);
		m_write(w, 0, p, 32);
	}
	(void)k;
	verify_deep(w);
	world_end(w);
}

void cases_direct(void)
{
	char name[72];

	for (int before = 0; before < 2; before++)
		for (int layout = 0; layout < L_COUNT; layout++) {
			if (layout == L_STRIPES)
				continue;
			snprintf(name, sizeof(name), "gup/direct%s/%s", before ? "-before" : "", layout_name[layout]);
			add(name, direct, 0, before, layout, 0);
		}
	add("gup/direct-fork-loop", fork_while_reading, 0, 0, 0, 0);
	add("gup/aio-in-flight", aio, 0, 0, 0, 0);
}
