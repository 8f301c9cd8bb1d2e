// SPDX-License-Identifier: GPL-2.0-only
// userfaultfd on parts of shared tables. With UFFD_FEATURE_SIGBUS a fault that would be an event is
// a SIGBUS, so that one thread can see all of it: which pages are missing or write-protected, and
// that nobody else's are.
#include "torture.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

struct move_arg { uint64_t dst, src, len, mode; int64_t moved; };
#define MOVE_IOCTL _IOWR(UFFDIO, 5, struct move_arg)
struct poison_arg { uint64_t start, len, mode; int64_t updated; };
#define POISON_IOCTL _IOWR(UFFDIO, 8, struct poison_arg)
#define FEATURE_POISON (1 << 14)
#define FEATURE_WP_ASYNC (1 << 15)
#define FEATURE_MOVE (1 << 16)

static int uffd = -1;	/* of an actor */

/* a[0] features */
static long do_open(struct world *w, int self, const long *a)
{
	struct uffdio_api api = { .api = UFFD_API, .features = (uint64_t)a[0] };

	(void)w, (void)self;
	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0)
		return -errno;
	return ioctl(uffd, UFFDIO_API, &api) ? -errno : 0;
}

/* a[0] page, a[1] count, a[2] mode */
static long do_register(struct world *w, int self, const long *a)
{
	struct uffdio_register r = {.range = {(uintptr_t)at(w, a[0]), (uint64_t)a[1] * PAGE},
				    .mode = (uint64_t)a[2]};

	(void)self;
	return ioctl(uffd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

static long do_unregister(struct world *w, int self, const long *a)
{
	struct uffdio_range r = { (uintptr_t)at(w, a[0]), (uint64_t)a[1] * PAGE };

	(void)self;
	return ioctl(uffd, UFFDIO_UNREGISTER, &r) ? -errno : 0;
}

/* Contents as the model says, into missing pages; a[2] 1: zero pages. */
static long do_install(struct world *w, int self, const long *a)
{
	static char __attribute__((aligned(4096))) page[PAGE];

	for (long i = a[0]; i < a[0] + a[1]; i++) {
		struct uffdio_copy c = { .dst = (uintptr_t)at(w, i), .src = (uintptr_t)page, .len = PAGE };
		struct uffdio_zeropage z = { .range = { (uintptr_t)at(w, i), PAGE } };

		fill_page(page, w->a[self].page[i].key);
		if (a[2] ? ioctl(uffd, UFFDIO_ZEROPAGE, &z) : ioctl(uffd, UFFDIO_COPY, &c))
			return -errno;
	}
	return 0;
}

static long do_protect(struct world *w, int self, const long *a)
{
	struct uffdio_writeprotect p = {.range = {(uintptr_t)at(w, a[0]), (uint64_t)a[1] * PAGE},
					.mode = (uint64_t)a[2]};

	(void)self;
	return ioctl(uffd, UFFDIO_WRITEPROTECT, &p) ? -errno : 0;
}

/* How many pages of the range answer with SIGBUS; a[2] 1: when written (with what they hold). */
static long do_count_sigbus(struct world *w, int self, const long *a)
{
	long n = 0;
	uint64_t v;

	for (long i = a[0]; i < a[0] + a[1]; i++)
		n += (a[2] ? try_write(at(w, i), word_of(w->a[self].page[i].key, 0))
			   : try_read(at(w, i), &v)) == SIGBUS;
	return n;
}

static void open_uffd(struct world *w, int a, long features)
{
	long r = on(w, a, do_open, features);

	if (r == -ENOSYS || r == -EPERM || r == -EINVAL)
		skip("no userfaultfd with features 0x%lx here: %s", features, strerror((int)-r));
	must(r == 0, "userfaultfd: %s", strerror((int)-r));
}

static void ok(long r, const char *what)
{
	must(r == 0, "%s: %s", what, strerror((int)-r));
}

static void watch(struct world *w, int a, long features, long mode, long p, long n)
{
	open_uffd(w, a, features);
	ok(on(w, a, do_register, p, n, mode), "register");
}

/* a[0]: who is registered: 0 the parent before the fork, which is the caller's then, 1 the child.
 * a[1]: the extent. */
static struct world *watched_world(const struct kase *k, long features, long mode, long *p, long *n)
{
	struct world *w = layout_world(L_ONE);
	int who = (int)k->a[0];

	layout_extent(L_ONE, (int)k->a[1], p, n);
	if (who)
		m_fork(w, 0);
	watch(w, who, features, mode, *p, *n);
	return w;
}

/* Missing pages are filled by COPY and ZEROPAGE. */
static void missing(const struct kase *k)
{
	int who = (int)k->a[0];
	long p, n, seen;
	struct world *w = watched_world(k, UFFD_FEATURE_SIGBUS, UFFDIO_REGISTER_MODE_MISSING, &p, &n);

	if (!who)
		m_fork(w, 0);
	verify(w);
	m_dontneed(w, who, p + 1, n - 2);
	seen = on(w, who, do_count_sigbus, p, n, 0);
	must(seen == n - 2, "%ld pages are missing, expected %ld", seen, n - 2);
	for (long i = p + 1; i < p + n / 2; i++)
		w->a[who].page[i].key = new_key(w);
	ok(on(w, who, do_install, p + 1, n / 2 - 1, 0), "UFFDIO_COPY");
	ok(on(w, who, do_install, p + n / 2, n - n / 2 - 1, 1), "UFFDIO_ZEROPAGE");
	verify(w);
	account(w);
	m_fork(w, who);
	m_write(w, 1 - who, p, n);
	verify(w);
	ok(on(w, who, do_unregister, p, n), "unregister");
	m_write(w, who, p, n);
	verify_deep(w);
	world_end(w);
}

/* Write protection: exactly the protected pages of exactly the registered process refuse writes. */
static void write_protect(const struct kase *k)
{
	int who = (int)k->a[0];
	long p, n, seen;
	struct world *w = watched_world(k, UFFD_FEATURE_SIGBUS | UFFD_FEATURE_PAGEFAULT_FLAG_WP,
					UFFDIO_REGISTER_MODE_WP, &p, &n);

	ok(on(w, who, do_protect, p, n - 2, UFFDIO_WRITEPROTECT_MODE_WP), "UFFDIO_WRITEPROTECT");
	if (!who)
		m_fork(w, 0);
	verify(w);
	seen = on(w, who, do_count_sigbus, p, n, 1);
	must(seen == n - 2, "%ld pages refuse writes, expected %ld", seen, n - 2);
	seen = on(w, 1 - who, do_count_sigbus, p, n, 1);
	must(seen == 0, "%ld pages of the other process refuse writes, expected none", seen);
	m_write(w, 1 - who, p, n);
	verify(w);
	ok(on(w, who, do_protect, p, n / 2, 0), "UFFDIO_WRITEPROTECT off");
	m_write(w, who, p, n / 2);
	seen = on(w, who, do_count_sigbus, p, n, 1);
	must(seen == n - 2 - n / 2, "%ld pages refuse writes after half was released, expected %ld",
	     seen, n - 2 - n / 2);
	int third = m_fork(w, who);

	seen = on(w, third, do_count_sigbus, p, n, 1);
	must(seen == 0, "%ld pages of a child without userfaultfd refuse writes", seen);
	m_write(w, third, p, n);
	verify_deep(w);
	world_end(w);
}

static long do_move(struct world *w, int self, const long *a)
{
	struct move_arg m = {.dst = (uintptr_t)at(w, a[1]),
			     .src = (uintptr_t)at(w, a[0]),
			     .len = (uint64_t)a[2] * PAGE,
			     .mode = 2};

	(void)self;
	return ioctl(uffd, MOVE_IOCTL, &m) ? (errno == EBUSY || errno == EAGAIN ? m.moved : -errno)
					   : m.moved;
}

/* UFFDIO_MOVE takes exclusive pages only: after a fork it is EBUSY or moves what is private, and
 * never the other's. */
static void move(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	int who = (int)k->a[0];
	long from = T2 + 30, to = T3 + 30, n = 16;

	m_fork(w, 0);
	open_uffd(w, who, UFFD_FEATURE_SIGBUS | FEATURE_MOVE);
	ok(on(w, who, do_register, to, n, UFFDIO_REGISTER_MODE_MISSING), "register");
	m_dontneed(w, who, to, n);
	for (int written = 0; written < 2; written++) {
		long moved = on(w, who, do_move, from, to, n) / (long)PAGE;

		must(moved == 0 || (moved > 0 && moved <= n), "UFFDIO_MOVE: %s", strerror((int)-moved));
		must(moved == 0 || written,
		     "UFFDIO_MOVE took %ld pages that two processes have, expected EBUSY", moved);
		must(moved == n || !written, "UFFDIO_MOVE took %ld private pages, expected %ld", moved, n);
		if (moved > 0)
			model_move(w, who, from, moved, to, true);
		for (long i = moved > 0 ? moved : 0; i < n; i++)
			w->a[who].page[to + i].prot = P_UNMAPPED, w->a[who].page[to + i].flags = 0;
		verify(w);
		m_write(w, who, from, n);
		for (long i = 0; i < n; i++)
			w->a[who].page[to + i].prot = P_RW;
	}
	verify_deep(w);
	world_end(w);
}

static long do_poison(struct world *w, int self, const long *a)
{
	struct poison_arg x = { .start = (uintptr_t)at(w, a[0]), .len = (uint64_t)a[1] * PAGE };

	(void)self;
	return ioctl(uffd, POISON_IOCTL, &x) ? -errno : 0;
}

static void poison(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	int who = (int)k->a[0];
	long p = T2 + 40, n = 20, seen;

	m_fork(w, 0);
	watch(w, who, FEATURE_POISON, UFFDIO_REGISTER_MODE_MISSING, p, n);
	m_dontneed(w, who, p, n);
	ok(on(w, who, do_poison, p, n), "UFFDIO_POISON");
	seen = on(w, who, do_count_sigbus, p, n, 0);
	must(seen == n, "%ld pages give SIGBUS, expected the %ld poisoned ones", seen, n);
	seen = on(w, 1 - who, do_count_sigbus, p, n, 0);
	must(seen == 0, "%ld pages of the other process are poisoned", seen);
	int third = m_fork(w, who);

	seen = on(w, third, do_count_sigbus, p, n, 0);
	must(seen == n, "%ld pages of a child give SIGBUS, expected %ld: poison is inherited", seen, n);
	m_dontneed(w, third, p, n);
	m_dontneed(w, who, p, n);
	ok(on(w, who, do_install, p, n, 1), "UFFDIO_ZEROPAGE");
	m_write(w, third, p, n);
	verify_deep(w);
	world_end(w);
}

static long do_fork_event(struct world *w, int self, const long *a)
{
	(void)a;
	pid_t pid = fork();	/* with EVENT_FORK it returns when the event was read, by the thread below */

	if (pid == 0)
		_exit(page_is(at(w, T2 + 99), w->a[self].page[T2 + 99].key) ? 0 : 1);
	int status;

	waitpid(pid, &status, 0);
	return status;
}

static _Atomic int events[32];

static void *read_events(void *argument)
{
	struct uffd_msg m;
	struct pollfd p = { .fd = uffd, .events = POLLIN };

	(void)argument;
	while (poll(&p, 1, 10000) > 0 && read(uffd, &m, sizeof(m)) == (ssize_t)sizeof(m)) {
		atomic_fetch_add(&events[m.event & 31], 1);
		if (m.event == UFFD_EVENT_FORK)
			close((int)m.arg.fork.ufd);
	}
	return NULL;
}

static long do_events(struct world *w, int self, const long *a)
{
	pthread_t t;

	if (pthread_create(&t, NULL, read_events, NULL))
		return -EAGAIN;
	long r = do_fork_event(w, self, a);

	if (r == 0)
		r = madvise(at(w, T2 + 10), 5 * PAGE, MADV_DONTNEED) ? -errno : 0;
	if (r == 0)
		r = munmap(at(w, T3 + 10), 5 * PAGE) ? -errno : 0;
	pthread_cancel(t);
	pthread_join(t, NULL);
	if (r)
		return r;
	return atomic_load(&events[UFFD_EVENT_FORK & 31]) == 1 &&
			       atomic_load(&events[UFFD_EVENT_REMOVE & 31]) == 1 &&
			       atomic_load(&events[UFFD_EVENT_UNMAP & 31]) == 1
		       ? 0
		       : -EPROTO;
}

static void fork_events(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);

	(void)k;
	m_fork(w, 0);
	open_uffd(w, 0, UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP);
	ok(on(w, 0, do_register, T1, 3 * TP, UFFDIO_REGISTER_MODE_MISSING), "register");
	ok(on(w, 0, do_events, 0), "events of fork, removal and unmapping");
	for (long i = 0; i < 5; i++)	/* now missing: a read would wait for ever */
		w->a[0].page[T2 + 10 + i] = w->a[0].page[T3 + 10 + i] = (struct page_model){ .prot = P_UNMAPPED };
	verify_deep(w);
	world_end(w);
}

struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof,
		returns;
};
#define SCAN_IOCTL _IOC(_IOC_READ | _IOC_WRITE, 'f', 16, sizeof(struct scan_arg))

/* a[2] 1: protect what is found (WP_MATCHING). Returns the number of written pages. */
static long do_scan_written(struct world *w, int self, const long *a)
{
	static struct { uint64_t start, end, categories; } r[1024];
	struct scan_arg s = {.size = sizeof(s),
			     .flags = a[2] ? 1 | 2 : 0,
			     .start = (uintptr_t)at(w, a[0]),
			     .end = (uintptr_t)at(w, a[0] + a[1]),
			     .vec = (uintptr_t)r,
			     .vec_len = 1024,
			     .mask = 2,
			     .returns = 2};
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	long n = ioctl(fd, SCAN_IOCTL, &s), pages = n < 0 ? -errno : 0;

	(void)self;
	for (long i = 0; i < n; i++)
		pages += (long)((r[i].end - r[i].start) / PAGE);
	close(fd);
	return pages;
}

/* Dirty tracking as CRIU does it: WP_ASYNC and PAGEMAP_SCAN with WP_MATCHING, on tables shared with
 * another. */
static void scan_written(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	int who = (int)k->a[0];
	long n;

	m_fork(w, 0);
	watch(w, who, FEATURE_WP_ASYNC | UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFDIO_REGISTER_MODE_WP,
	      T2 - 20, TP);
	n = on(w, who, do_scan_written, T2 - 20, TP, 1);
	must(n >= 0, "PAGEMAP_SCAN: %s", strerror((int)-n));
	n = on(w, who, do_scan_written, T2 - 20, TP, 0);
	must(n == 0, "%ld pages are written right after all were protected", n);
	verify(w);
	m_write(w, who, T2 + 5, 7);
	m_write(w, 1 - who, T2 + 50, 60);
	n = on(w, who, do_scan_written, T2 - 20, TP, 0);
	must(n == 7, "%ld pages are written, expected the 7 this process wrote", n);
	int third = m_fork(w, who);

	m_write(w, third, T2 + 5, 99);
	n = on(w, who, do_scan_written, T2 - 20, TP, 1);
	must(n == 7, "%ld pages are written after a child wrote its own, expected 7", n);
	verify_deep(w);
	world_end(w);
}

void cases_uffd(void)
{
	static const char *const by[] = { "parent", "child" };
	char name[72];

	for (int who = 0; who < 2; who++) {
		for (int extent = 0; extent < X_COUNT; extent++) {
			snprintf(name, sizeof(name), "uffd/missing-%s/%s", by[who], extent_name[extent]);
			add(name, missing, NEED_ROOT, who, extent, 0);
			snprintf(name, sizeof(name), "uffd/wp-%s/%s", by[who], extent_name[extent]);
			add(name, write_protect, NEED_ROOT, who, extent, 0);
		}
		snprintf(name, sizeof(name), "uffd/move-%s", by[who]);
		add(name, move, NEED_ROOT, who, 0, 0);
		snprintf(name, sizeof(name), "uffd/poison-%s", by[who]);
		add(name, poison, NEED_ROOT, who, 0, 0);
		snprintf(name, sizeof(name), "uffd/scan-written-%s", by[who]);
		add(name, scan_written, NEED_ROOT, who, 0, 0);
	}
	add("uffd/events", fork_events, NEED_ROOT, 0, 0, 0);
}
