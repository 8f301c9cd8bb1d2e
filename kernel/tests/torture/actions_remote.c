// SPDX-License-Identifier: GPL-2.0-only
// Actions of the matrix: memory written by others, or by the kernel as the buffer of a call.
#include "torture.h"
#include <sys/ptrace.h>

static void act_vm_writev(struct world *w, int a, long p, long n)
{
	static _Thread_local char copy[PAGE];

	model_new_keys(w, a, p, n);
	for (long i = p; i < p + n; i++) {
		struct iovec from = { copy, PAGE }, to = { at(w, i), PAGE };

		if (w->a[a].page[i].prot != P_RW)
			continue;
		fill_page(copy, w->a[a].page[i].key);
		ssize_t r = process_vm_writev(w->a[a].pid, &from, 1, &to, 1, 0);

		must(r == (ssize_t)PAGE,
		     "process_vm_writev to page %ld of actor %d: %zd, expected a page", i, a, r);
	}
}

static void act_proc_mem(struct world *w, int a, long p, long n)
{
	static _Thread_local char copy[PAGE];
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/mem", w->a[a].pid);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	must(fd >= 0, "%s: %s", path, strerror(errno));
	for (long i = p; i < p + n; i++) {
		struct page_model *m = &w->a[a].page[i];

		if (m->prot < P_READ)
			continue;
		/* Read-only pages too: /proc/PID/mem breaks copy-on-write for a debugger. */
		m->key = new_key(w), m->flags &= ~F_MAYZERO;
		fill_page(copy, m->key);
		ssize_t r = pwrite(fd, copy, PAGE, (off_t)at(w, i));

		if (r < 0 && m->prot == P_READ)
			skip("%s does not write to read-only memory here (proc_mem.force_override)", path);
		must(r == (ssize_t)PAGE, "write to %s, page %ld: %zd, expected a page", path, i, r);
	}
	close(fd);
}

static void act_read_remote(struct world *w, int a, long p, long n)
{
	(void)p, (void)n;
	verify_remote(w, a, false);
	verify_remote(w, a, true);
}

static void act_poke(struct world *w, int a, long p, long n)
{
	pid_t pid = w->a[a].pid;
	int status;

	must(ptrace(PTRACE_SEIZE, pid, 0, 0) == 0, "PTRACE_SEIZE: %s", strerror(errno));
	ptrace(PTRACE_INTERRUPT, pid, 0, 0);
	waitpid(pid, &status, __WALL);
	for (long i = p; i < p + n; i += n > 1 ? n - 1 : 1) {
		struct page_model *m = &w->a[a].page[i];

		if (m->prot != P_RW)
			continue;
		m->key = new_key(w), m->flags &= ~F_MAYZERO;
		for (long k = 0; k < (long)(PAGE / 8); k++) {
			long r = ptrace(PTRACE_POKEDATA, pid, at(w, i) + 8 * k, (void *)word_of(m->key, (size_t)k));

			must(r == 0, "PTRACE_POKEDATA to page %ld: %s", i, strerror(errno));
		}
		errno = 0;
		long seen = ptrace(PTRACE_PEEKDATA, pid, at(w, i) + 8, 0);

		must(errno == 0 && (uint64_t)seen == word_of(m->key, 1),
		     "PTRACE_PEEKDATA of page %ld is not what was poked", i);
	}
	ptrace(PTRACE_DETACH, pid, 0, 0);
}

/* read(2) into memory of pieces of all sizes: copy_to_user through tables not yet unshared. */
static long do_read_into(struct world *w, int self, const long *a)
{
	static const size_t piece[] = { 1, 7, 64, 4095, 8191, 12289, 65536 };
	static char page[PAGE];
	int fd = memfd_create("torture", MFD_CLOEXEC);
	size_t size = (size_t)a[1] * PAGE, done = 0;

	for (long i = 0; i < a[1]; i++) {
		fill_page(page, w->a[self].page[a[0] + i].key);
		if (pwrite(fd, page, PAGE, i * (off_t)PAGE) != (ssize_t)PAGE)
			return -errno;
	}
	for (int k = 0; done < size; k++) {
		size_t want = piece[k % 7] < size - done ? piece[k % 7] : size - done;
		ssize_t r = read(fd, at(w, a[0]) + done, want);

		if (r != (ssize_t)want)
			return r < 0 ? -errno : -EIO;
		done += want;
	}
	close(fd);
	return 0;
}

/* fn on every run of writable pages in the range. */
static void writable_runs(struct world *w, int a, long p, long n, actor_fn fn)
{
	for (long i = p; i < p + n;) {
		long run = 0;

		while (i + run < p + n && w->a[a].page[i + run].prot == P_RW)
			run++;
		long r = run ? on(w, a, fn, i, run) : 0;

		must(r == 0, "a system call with pages %ld to %ld of actor %d as buffer: %s", i, i + run - 1, a,
		     strerror((int)-r));
		i += run ? run : 1;
	}
}

static void act_read_into(struct world *w, int a, long p, long n)
{
	model_new_keys(w, a, p, n);
	writable_runs(w, a, p, n, do_read_into);
}

/* write(2) out of memory: what arrives is what the model says. */
static long do_write_out(struct world *w, int self, const long *a)
{
	static char page[PAGE];
	int fd = memfd_create("torture", MFD_CLOEXEC);
	size_t size = (size_t)a[1] * PAGE;

	if (write(fd, at(w, a[0]), size) != (ssize_t)size)
		return -errno;
	for (long i = 0; i < a[1]; i++) {
		const struct page_model *m = &w->a[self].page[a[0] + i];

		if (pread(fd, page, PAGE, i * (off_t)PAGE) != (ssize_t)PAGE)
			return -errno;
		if (!page_is(page, m->key) && !((m->flags & F_MAYZERO) && page_is(page, 0)))
			return -EILSEQ;
	}
	close(fd);
	return 0;
}

static void act_write_out(struct world *w, int a, long p, long n)
{
	writable_runs(w, a, p, n, do_write_out);
}

/* Small results of system calls at the last bytes of pages: put_user, one page each. */
static long do_results(struct world *w, int self, const long *a)
{
	for (long i = a[0]; i < a[0] + a[1]; i++) {
		long *last = (long *)(at(w, i + 1) - 16);

		if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC, last) != 0)
			return -errno;
		if (last[1] < 0 || last[1] >= 1000000000)
			return -ERANGE;
		fill_page(at(w, i), w->a[self].page[i].key);
	}
	return 0;
}

static void act_results(struct world *w, int a, long p, long n)
{
	model_new_keys(w, a, p, n);
	writable_runs(w, a, p, n, do_results);
}

const struct action actions_remote[] = {
	{ "vm-writev", act_vm_writev, 0, 0 },
	{ "proc-mem", act_proc_mem, 0, 0 },
	{ "remote-read", act_read_remote, 0, 0 },
	{ "ptrace-poke", act_poke, 0, 0 },
	{ "read-into", act_read_into, 0, 0 },
	{ "write-out", act_write_out, 0, 0 },
	{ "put-user", act_results, 0, 0 },
	{ 0 },
};
