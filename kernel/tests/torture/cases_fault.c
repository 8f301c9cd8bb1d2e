// SPDX-License-Identifier: GPL-2.0-only
// Allocations that fail. /proc/thread-self/fail-nth makes the N-th allocation of the next calls
// fail, so that every edge of an operation is walked: it succeeds or says ENOMEM, never loses a
// byte, and succeeds when repeated.
#include "torture.h"

#define INJECT "/sys/kernel/debug/fail_page_alloc"

struct operation {
	const char *name;
	long nr, third;		/* system call on the range, its third argument */
	int prot;		/* of the range afterwards, -1: as it was */
	bool zero;
};
static const struct operation operations[] = {
	{ "munmap", SYS_munmap, 0, P_UNMAPPED, false },
	{ "mprotect", SYS_mprotect, PROT_READ, P_READ, false },
	{ "mlock", SYS_mlock, 0, -1, false },
	{ "dontneed", SYS_madvise, MADV_DONTNEED, -1, true },
	{ "dontdump", SYS_madvise, MADV_DONTDUMP, -1, false },
	{ "wipeonfork", SYS_madvise, MADV_WIPEONFORK, -1, false },
	{ "free", SYS_madvise, MADV_FREE, -1, false },
	{ "populate", SYS_madvise, MADV_POPULATE_WRITE, -1, false },
	{ "cold", SYS_madvise, MADV_COLD, -1, false },
	{ "move", SYS_mremap, 0, P_UNMAPPED, false },
	{ "write", -1, 0, -1, false },
	{ "fork", -2, 0, -1, false },
};

/* a[0] which allocation fails, then the call. Returns its result; scratch tells whether one failed.
 */
static long do_failing(struct world *w, int self, const long *a)
{
	const struct operation *o = &operations[a[3]];
	char text[16];
	int fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	long r = 0, size = a[2] * (long)PAGE;
	pid_t pid = 0;

	if (fd < 0)
		return -errno;
	snprintf(text, sizeof(text), "%ld", a[0]);
	if (write(fd, text, strlen(text)) < 0)
		return -errno;
	if (o->nr == SYS_mremap)
		r = syscall(SYS_mremap, at(w, a[1]), size, size, MREMAP_MAYMOVE | MREMAP_FIXED,
			    at(w, a[1] + 3 * TP));
	else if (o->nr >= 0)
		r = syscall(o->nr, at(w, a[1]), size, o->third);
	else if (o->nr == -1)
		do_write(w, self, (const long[]){ a[1], a[2] });
	else
		r = pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (o->nr == -2 && pid == 0)
		_exit(0);
	r = r < 0 ? -errno : 0;
	memset(text, 0, sizeof(text));
	(void)!pread(fd, text, sizeof(text) - 1, 0);
	w->scratch[0] = text[0] == '0';
	(void)!pwrite(fd, "0", 1, 0);
	close(fd);
	if (pid > 0)
		waitpid(pid, NULL, __WALL);
	return r;
}

static void apply(struct world *w, int a, const struct operation *o, long p, long n)
{
	if (o->nr == SYS_mremap) {
		model_move(w, a, p, n, p + 3 * TP, false);
		return;
	}
	for (long i = p; i < p + n; i++) {
		struct page_model *m = &w->a[a].page[i];

		if (o->prot == P_UNMAPPED)
			*m = (struct page_model){ .prot = P_UNMAPPED, .flags = F_EVER };
		else if (o->prot >= 0)
			m->prot = (uint8_t)o->prot;
		if (o->zero)
			m->key = 0;
		if (o->nr == SYS_madvise && o->third == MADV_FREE)
			m->flags |= F_MAYZERO;
		if (o->nr == SYS_madvise && o->third == MADV_WIPEONFORK)
			m->flags |= F_WIPE;
	}
}

/* MADV_DONTNEED and MADV_FREE may have done a part before they failed; nobody else may see any of
 * it. */
static void partly(struct world *w, int a, const struct operation *o, long p, long n)
{
	for (long i = p; i < p + n && (o->zero || o->third == MADV_FREE); i++)
		w->a[a].page[i].flags |= F_MAYZERO;
}

/* Returns false when there was no such allocation any more. */
static bool edge(long number, long which, int who, int extent)
{
	const struct operation *o = &operations[which];
	struct world *w = layout_world(L_ONE);
	long p, n;

	layout_extent(L_ONE, extent, &p, &n);
	m_fork(w, 0);
	if (o->nr == -1)
		model_new_keys(w, who, p, n);
	long r = on(w, who, do_failing, number, p, n, which);
	bool failed = w->scratch[0];

	context("%s, allocation %ld fails, extent %s: ", o->name, number, extent_name[extent]);
	must(r == 0 || r == -ENOMEM || r == -EAGAIN || r == -EFAULT,
	     "%s, expected success or ENOMEM", strerror((int)-r));
	must(r == 0 || failed, "%s though no allocation failed", strerror((int)-r));
	if (r == 0) {
		apply(w, who, o, p, n);
		/* Any 6.12: a move whose last step, unmapping the old place, finds no memory succeeds and leaves
		 * empty memory there. */
		if (o->nr == SYS_mremap && failed &&
		    actor_sys(w, who, SYS_msync, (long)at(w, p), n * PAGE, MS_ASYNC) == 0)
			model_set(w, who, p, n, P_RW, 0);
		verify(w);
	} else {
		partly(w, who, o, p, n);
		/* mprotect may have changed a part; contents are compared when it is complete. */
		if (o->prot < 0 || o->prot == P_UNMAPPED)
			verify(w);
		r = on(w, who, do_failing, 0, p, n, which);
		must(r == 0, "the same call without failing allocations: %s", strerror((int)-r));
		apply(w, who, o, p, n);
		verify(w);
	}
	m_write(w, 1 - who, p, n);
	account(w);
	verify_deep(w);
	world_end(w);
	return failed;
}

static void failing(const struct kase *k)
{
	if (access(INJECT, F_OK))
		skip("no %s (CONFIG_FAIL_PAGE_ALLOC, debugfs mounted)", INJECT);
	if (access("/proc/thread-self/fail-nth", F_OK))
		skip("no /proc/thread-self/fail-nth (CONFIG_FAULT_INJECTION)");
	write_file(INJECT "/ignore-gfp-wait", "N");
	write_file(INJECT "/min-order", "0");
	write_file(INJECT "/probability", "0");
	write_file(INJECT "/verbose", "0");
	write_file("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	write_file("/sys/kernel/debug/failslab/verbose", "0");
	for (int extent = 0; extent < (opt.quick ? 2 : X_COUNT); extent++)
		for (int who = 0; who < 2; who++)
			for (long number = 1; number < (opt.quick ? 8 : 40); number++)
				if (!edge(number, k->a[0], who, extent))
					break;
}

void cases_fault(void)
{
	char name[72];

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		snprintf(name, sizeof(name), "fault/%s", operations[i].name);
		add(name, failing, NEED_ROOT | NEED_GUEST, (long)i, 0, 0);
	}
}
