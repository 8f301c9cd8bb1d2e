// SPDX-License-Identifier: GPL-2.0-only
// Compares memory with the model: by the actor itself through the CPU, and by the case process
// through process_vm_readv or /proc/PID/mem.
#include "torture.h"
#include <setjmp.h>

static sigjmp_buf fault_jump;
static volatile sig_atomic_t fault_armed;

static void on_fault(int signal)
{
	if (!fault_armed) {
		struct sigaction plain = { .sa_handler = SIG_DFL };

		sigaction(signal, &plain, NULL);	/* returns to the fault and dies of it */
		return;
	}
	fault_armed = 0;
	siglongjmp(fault_jump, signal);
}

void catch_faults(void)
{
	struct sigaction s = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };

	sigaction(SIGSEGV, &s, NULL);
	sigaction(SIGBUS, &s, NULL);
}

/* One access that may fault: 0 or the signal. */
static int try_access(volatile uint64_t *p, uint64_t *value, bool write)
{
	int signal = sigsetjmp(fault_jump, 0);

	if (signal)
		return signal;
	fault_armed = 1;
	if (write)
		*p = *value;
	else
		*value = *p;
	fault_armed = 0;
	return 0;
}

int try_read(const volatile void *p, uint64_t *value)
{
	return try_access((volatile uint64_t *)p, value, false);
}

int try_write(volatile void *p, uint64_t value)
{
	return try_access(p, &value, true);
}

void fill_page(void *page, uint64_t key)
{
	volatile uint64_t *w = page;

	for (size_t i = 0; i < PAGE / 8; i++)
		w[i] = word_of(key, i);
}

static long first_difference(const uint64_t *w, uint64_t key, size_t step)
{
	for (size_t i = 0; i < PAGE / 8; i += step)
		if (w[i] != word_of(key, i))
			return (long)i;
	return -1;
}

bool page_is(const void *page, uint64_t key)
{
	return first_difference(page, key, 1) < 0;
}

/* Whose contents are these? The answer is half of the diagnosis. */
static const char *whose(const struct world *w, long p, uint64_t word0)
{
	static char text[80];

	if (word0 == 0)
		return "zeros";
	for (int i = 0; i < w->actors; i++) {
		if (w->a[i].page[p].key == word0) {
			snprintf(text, sizeof(text), "what actor %d must have there", i);
			return text;
		}
		for (long q = 0; q < ARENA_PAGES; q++)
			if (w->a[i].page[q].key == word0) {
				snprintf(text, sizeof(text), "what actor %d must have in page %ld", i, q);
				return text;
			}
	}
	return "older or foreign contents";
}

static bool contents_ok(struct world *w, int self, long p, const void *memory, size_t step,
			const char *how)
{
	const struct page_model *m = &w->a[self].page[p];
	long i = first_difference(memory, m->key, step);

	if (i < 0 || ((m->flags & F_MAYZERO) && first_difference(memory, 0, step) < 0))
		return true;
	const uint64_t *words = memory;

	snprintf(w->a[self].note, sizeof(w->a[self].note),
		 "actor %d, page %ld (table %ld, entry %ld) %s: word %ld is 0x%llx, expected "
		 "0x%llx; the page begins with %s",
		 self, p, p / TP, p % TP, how, i, (unsigned long long)words[i],
		 (unsigned long long)word_of(m->key, (size_t)i), whose(w, p, words[0]));
	return false;
}

static bool at_edge(const struct page_model *m, long p)
{
	return p == 0 || p == ARENA_PAGES - 1 || m[p - 1].prot != m[p].prot ||
	       m[p + 1].prot != m[p].prot || p % 16 == 5;
}

static bool faults_as_told(struct world *w, int self, long p, bool write)
{
	uint64_t v = 0;
	int signal = write ? try_write(at(w, p), 1) : try_read(at(w, p), &v);

	if (signal == SIGSEGV)
		return true;
	snprintf(w->a[self].note, sizeof(w->a[self].note),
		 "actor %d, page %ld (table %ld, entry %ld): %s gave %s%d, expected SIGSEGV; word "
		 "0 is %s",
		 self, p, p / TP, p % TP, write ? "a write" : "a read",
		 signal ? "signal " : "success ", signal, whose(w, p, v));
	return false;
}

static bool reads_as_told(struct world *w, int self, long p, size_t step)
{
	int signal = sigsetjmp(fault_jump, 0);

	if (signal) {
		snprintf(w->a[self].note, sizeof(w->a[self].note),
			 "actor %d, page %ld (table %ld, entry %ld): a read gave signal %d, "
			 "expected contents",
			 self, p, p / TP, p % TP, signal);
		return false;
	}
	fault_armed = 1;
	bool ok = contents_ok(w, self, p, at(w, p), step, "by its own read");

	fault_armed = 0;
	return ok;
}

/* a[0]: every how many words. 0: all is as the model says, 1: see note. */
static long do_check(struct world *w, int self, const long *a)
{
	const struct page_model *m = w->a[self].page;

	for (long p = 0; p < ARENA_PAGES; p++) {
		if (m[p].prot == P_UNMAPPED && !(m[p].flags & F_EVER))
			continue;
		bool edge = at_edge(m, p);

		if (m[p].prot <= P_NONE) {
			if (edge && !faults_as_told(w, self, p, false))
				return 1;
			continue;
		}
		if (!reads_as_told(w, self, p, (size_t)a[0]) ||
		    (m[p].prot == P_READ && edge && !faults_as_told(w, self, p, true)))
			return 1;
	}
	return 0;
}

static void check_all(struct world *w, long step)
{
	for (int i = 0; i < w->actors; i++)
		if (w->a[i].live)
			rpc_send(w, i, do_check, (const long[7]){ step });
	for (int i = 0; i < w->actors; i++)
		if (w->a[i].live && rpc_answer(w, i))
			fail("%s", w->a[i].note);
}

void verify(struct world *w)
{
	check_all(w, 8);
}

void verify_deep(struct world *w)
{
	check_all(w, 1);
	for (int i = 0; i < w->actors; i++)
		if (w->a[i].live)
			verify_remote(w, i, i % 2);
}

/* GUP from outside. It unshares whatever it reads, so it comes last. */
void verify_remote(struct world *w, int actor, bool proc_mem)
{
	static _Thread_local uint64_t copy[PAGE / 8];
	const struct page_model *m = w->a[actor].page;
	char path[40];
	int fd = -1;

	if (proc_mem) {
		snprintf(path, sizeof(path), "/proc/%d/mem", w->a[actor].pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		must(fd >= 0, "%s: %s", path, strerror(errno));
	}
	for (long p = 0; p < ARENA_PAGES; p++) {
		if (m[p].prot < P_READ)
			continue;	/* /proc/PID/mem reads through PROT_NONE by design */
		struct iovec to = { copy, PAGE }, from = { at(w, p), PAGE };
		ssize_t n = proc_mem ? pread(fd, copy, PAGE, (off_t)at(w, p)) :
				       process_vm_readv(w->a[actor].pid, &to, 1, &from, 1, 0);

		must(n == (ssize_t)PAGE,
		     "actor %d, page %ld from outside: read gave %zd (%s), expected a page", actor,
		     p, n, n < 0 ? strerror(errno) : "short");
		if (!contents_ok(w, actor, p, copy, 1,
				 proc_mem ? "through /proc/PID/mem" : "through process_vm_readv"))
			fail("%s", w->a[actor].note);
	}
	if (fd >= 0)
		close(fd);
}

long do_write(struct world *w, int self, const long *a)
{
	for (long p = a[0]; p < a[0] + a[1]; p++)
		if (w->a[self].page[p].prot == P_RW)
			fill_page(at(w, p), w->a[self].page[p].key);
	return 0;
}

long do_read(struct world *w, int self, const long *a)
{
	for (long p = a[0]; p < a[0] + a[1]; p++)
		if (w->a[self].page[p].prot >= P_READ)
			(void)*(volatile uint64_t *)at(w, p);
	return 0;
}
