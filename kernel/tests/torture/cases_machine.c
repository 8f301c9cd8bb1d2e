// SPDX-License-Identifier: GPL-2.0-only
// What the machine does to everybody's memory: KSM, khugepaged, compaction, memory failure,
// hotplug; and whether anything leaks. These change the machine, so they run with --guest only, and
// put settings back.
#include "torture.h"
#include <dirent.h>

struct setting { char path[120], before[64]; };
static struct setting settings[8];
static int settings_used;

static bool set(const char *path, const char *value)
{
	struct setting *s = &settings[settings_used];

	if (read_file(path, s->before, sizeof(s->before)) <= 0 || write_file(path, value))
		return false;
	/* A choice reads as "a [b] c". */
	char *open = strchr(s->before, '['), *close = strchr(s->before, ']');

	if (open && close) {
		*close = 0;
		memmove(s->before, open + 1, strlen(open + 1) + 1);
	}
	snprintf(s->path, sizeof(s->path), "%s", path);
	settings_used++;
	return true;
}

static void put_back(void)
{
	while (settings_used > 0) {
		struct setting *s = &settings[--settings_used];

		write_file(s->path, s->before);
	}
}

/* Pages of equal contents in three processes; KSM merges them while they are written and forked. */
static void ksm(const struct kase *k)
{
	(void)k;
	if (!set("/sys/kernel/mm/ksm/run", "1"))
		skip("this kernel has no KSM");
	set("/sys/kernel/mm/ksm/sleep_millisecs", "1");
	set("/sys/kernel/mm/ksm/pages_to_scan", "4000");
	struct world *w = layout_world(L_ONE);

	for (int round = 0; round < 6; round++) {
		uint64_t key = new_key(w);
		int a = round % 2 ? w->actors - 1 : 0;

		m_madvise(w, a, T1, 3 * TP, MADV_MERGEABLE);
		for (long p = T1; p < T4; p++)
			if (p % 3)
				w->a[a].page[p].key = key;
		on(w, a, do_write, T1, 3 * TP);
		m_fork(w, a);
		for (int turn = 0; turn < 10; turn++) {
			usleep(30000);
			m_write(w, (int)below((size_t)w->actors), T1 + (long)below(2 * TP), 9);
			verify(w);
		}
	}
	put_back();
	for (int i = 0; i < w->actors; i += 2)
		m_madvise(w, i, T1, 3 * TP, MADV_UNMERGEABLE);
	write_file("/sys/kernel/mm/ksm/run", "2");	/* unmerges everything */
	verify(w);
	write_file("/sys/kernel/mm/ksm/run", "0");
	verify_deep(w);
	world_end(w);
}

static void khugepaged(const struct kase *k)
{
	(void)k;
	if (!set("/sys/kernel/mm/transparent_hugepage/enabled", "always"))
		skip("this kernel has no huge pages");
	set("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "1");
	set("/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs", "1");
	set("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "4096");
	set("/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_shared", "511");
	struct world *w = layout_world(L_ONE);

	for (int round = 0; round < 6; round++) {
		m_fork(w, round / 2);
		m_madvise_may(w, round / 2, T1, 3 * TP, MADV_HUGEPAGE);
		for (int turn = 0; turn < 10; turn++) {
			usleep(30000);
			m_write(w, (int)below((size_t)w->actors), T1 + (long)below(2 * TP), 9);
			verify(w);
		}
	}
	put_back();
	verify_deep(w);
	world_end(w);
}

/* A process that pushes without end, while sharers fork, write and leave in all orders. */
static pid_t pusher(const char *path, const char *value)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	for (;;) {
		write_file(path, value);
		usleep(500);
	}
}

static void while_pushed(const char *path, const char *value)
{
	if (access(path, W_OK))
		skip("this kernel has no %s", path);
	pid_t pid = pusher(path, value);

	for (int round = 0; round < (int)scaled(10); round++) {
		struct world *w = layout_world(round % 2 ? L_HOLES : L_ONE);

		for (int i = 0; i < 5; i++) {
			m_fork(w, i / 2);
			m_write(w, i, T1 + (long)below(2 * TP), (long)below(TP));
		}
		verify(w);
		for (int i = 0; i < 5; i++) {
			int who = (int)below(6);

			if (w->a[who].live && i < 4)
				actor_kill(w, who);
			verify(w);
		}
		account(w);
		verify_deep(w);
		world_end(w);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void compaction(const struct kase *k)
{
	(void)k;
	while_pushed("/proc/sys/vm/compact_memory", "1");
}

static void drop_caches(const struct kase *k)
{
	(void)k;
	while_pushed("/proc/sys/vm/drop_caches", "3");
}

static long do_probe(struct world *w, int self, const long *a)
{
	uint64_t v;

	(void)self;
	return try_read(at(w, a[0]), &v);
}

static void note_signal(int signal)
{
	(void)signal;
}

/* Whoever asks for the failure gets a SIGBUS of its own at once. */
static long do_fail_page(struct world *w, int self, const long *a)
{
	struct sigaction s = { .sa_handler = note_signal };

	(void)self;
	sigaction(SIGBUS, &s, NULL);
	long r = madvise(at(w, a[0]), PAGE, MADV_HWPOISON) ? -errno : 0;

	catch_faults();
	return r;
}

/* Memory failure on a page two processes have: both lose that page and no other one. */
static void hwpoison(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	long p = T2 + 77;

	m_fork(w, 0);
	if (k->a[0])
		m_write(w, 1, T2, TP);
	long r = on(w, 0, do_fail_page, p);

	if (r)
		skip("MADV_HWPOISON: %s (CONFIG_MEMORY_FAILURE?)", strerror((int)-r));
	for (int i = 0; i < 2; i++) {
		long signal = on(w, i, do_probe, p), expected = i == 1 && k->a[0] ? 0 : SIGBUS;

		must(signal == expected,
		     "a read of the failed page by actor %d gives signal %ld, expected %ld", i,
		     signal, expected);
		if (signal)
			w->a[i].page[p] = (struct page_model){ .prot = P_UNMAPPED };
	}
	m_fork(w, 0);
	verify(w);
	for (int i = 0; i < 3; i++)
		m_write(w, i, T2 + 100, 50);
	m_unmap(w, 0, p, 1);
	verify_deep(w);
	world_end(w);
}

/* Takes blocks of memory away and brings them back, while tables are shared. */
static void hotplug(const struct kase *k)
{
	DIR *d = opendir("/sys/devices/system/memory");
	struct dirent *e;
	int moved = 0, tried = 0;
	struct world *w = layout_world(L_ONE);

	(void)k;
	m_fork(w, 0);
	m_fork(w, 1);
	m_write(w, 1, T2, 50);
	while (d && (e = readdir(d)) != NULL && tried < 12) {
		char path[400], text[16];

		snprintf(path, sizeof(path), "/sys/devices/system/memory/%s/state", e->d_name);
		if (strncmp(e->d_name, "memory", 6) || read_file(path, text, sizeof(text)) <= 0 ||
		    strncmp(text, "online", 6))
			continue;
		tried++;
		if (write_file(path, "offline") == 0) {
			moved++;
			verify(w);
			long r = write_file(path, "online");

			/* A block with a page that failed before stays away for good (6.12: EHWPOISON). */
			must(r == 0 || r == -EHWPOISON, "%s does not come back: %s", path, strerror((int)-r));
		}
		verify(w);
	}
	if (d)
		closedir(d);
	if (!moved)
		skip("no block of memory could be taken offline");
	account(w);
	verify_deep(w);
	world_end(w);
}

static void mixed_round(void)
{
	struct world *w = layout_world(L_ONE);

	for (int i = 0; i < 6; i++) {
		m_fork(w, i / 2);
		m_write(w, i, T1 + 40 * i, TP);
	}
	m_unmap(w, 1, T2, TP);
	m_dontneed(w, 2, T1, 2 * TP);
	m_move(w, 3, T3, TP, T5, 0);
	m_protect(w, 4, T2 + 9, 99, P_READ);
	for (int i = 0; i < 7; i++)
		if (i % 2)
			actor_kill(w, i);
	world_end(w);
}

struct usage { long tables, anonymous, free, swap; };

static struct usage usage(void)
{
	write_file("/proc/sys/vm/drop_caches", "3");
	usleep(100000);		/* tables are freed after an RCU grace period */
	return (struct usage){vmstat("nr_page_table_pages"), vmstat("nr_anon_pages"),
			      meminfo("MemFree") / 4,
			      (meminfo("SwapTotal") - meminfo("SwapFree")) / 4};
}

/* A hundred rounds that share hundreds of tables each must leave the machine as it was. A leak of
 * one table a round shows; noise of the machine is met by trying again. */
static void leaks(const struct kase *k)
{
	int rounds = opt.quick ? 30 : 100;

	(void)k;
	mixed_round();
	for (int turn = 0;; turn++) {
		struct usage a = usage(), b;

		for (int i = 0; i < rounds; i++)
			mixed_round();
		b = usage();
		long tables = b.tables - a.tables, pages = b.anonymous - a.anonymous,
		     lost = a.free - b.free, swap = b.swap - a.swap;

		if (tables < rounds && pages < 2 * rounds && lost < 40 * rounds && swap < 2 * rounds)
			return;
		must(turn < 3,
		     "%d rounds leave %ld page tables, %ld anonymous pages, %ld pages of memory, "
		     "%ld of swap",
		     rounds, tables, pages, lost, swap);
	}
}

void cases_machine(void)
{
	add("machine/ksm", ksm, NEED_ROOT | NEED_GUEST, 0, 0, 0);
	add("machine/khugepaged", khugepaged, NEED_ROOT | NEED_GUEST, 0, 0, 0);
	add("machine/compaction", compaction, NEED_ROOT | NEED_GUEST, 0, 0, 0);
	add("machine/drop-caches", drop_caches, NEED_ROOT | NEED_GUEST, 0, 0, 0);
	add("machine/hotplug", hotplug, NEED_ROOT | NEED_GUEST, 0, 0, 0);
	add("machine/hwpoison-shared", hwpoison, NEED_ROOT | NEED_GUEST, 0, 0, 0);
	add("machine/hwpoison-private", hwpoison, NEED_ROOT | NEED_GUEST, 1, 0, 0);
	add("machine/leaks", leaks, NEED_ROOT | NEED_GUEST, 0, 0, 0);
}
