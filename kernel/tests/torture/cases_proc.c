// SPDX-License-Identifier: GPL-2.0-only
// Every reader of /proc that walks page tables, by the process itself and by another one, while
// tables are shared: reading must not change a byte.
#include "torture.h"
#include <dirent.h>

static const char *const per_process[] = {
	"smaps",     "smaps_rollup", "maps",	"numa_maps", "pagemap",	   "statm",
	"status",    "stat",	     "environ", "cmdline",   "auxv",	   "oom_score",
	"map_files", "io",	     "sched",	"wchan",     "everything",
};

static void read_all(const char *path, off_t from, size_t limit)
{
	static _Thread_local char buffer[65536];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return;
	while (limit &&
	       (n = pread(fd, buffer, sizeof(buffer) < limit ? sizeof(buffer) : limit, from)) > 0) {
		from += n;
		limit -= (size_t)n < limit ? (size_t)n : limit;
	}
	close(fd);
}

static void read_directory(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	char name[600], target[600];

	while (d && (e = readdir(d)) != NULL) {
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		if (e->d_type == DT_REG && strcmp(e->d_name, "mem") && strcmp(e->d_name, "pagemap"))
			read_all(name, 0, 1 << 20);
		else if (e->d_type == DT_LNK)
			(void)!readlink(name, target, sizeof(target));
	}
	if (d)
		closedir(d);
}

static void read_one(const struct world *w, int which, pid_t pid)
{
	char path[80];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid,
		 strcmp(per_process[which], "everything") ? per_process[which] : "");
	if (!strcmp(per_process[which], "pagemap"))
		read_all(path, (off_t)((uintptr_t)w->base / PAGE * 8), ARENA_PAGES * 8);
	else if (!strcmp(per_process[which], "map_files") || !strcmp(per_process[which], "everything"))
		read_directory(path);
	else
		read_all(path, 0, 1 << 22);
}

static long do_read_proc(struct world *w, int self, const long *a)
{
	(void)self;
	read_one(w, (int)a[0], getpid());
	return 0;
}

static void read_by(struct world *w, int which, bool by_self)
{
	for (int i = 0; i < w->actors; i++) {
		if (by_self)
			on(w, i, do_read_proc, which);
		else
			read_one(w, which, w->a[i].pid);
	}
}

static void proc_reader(const struct kase *k)
{
	struct world *w = layout_world((int)k->a[2]);
	char path[80];
	int which = (int)k->a[0];
	bool by_self = k->a[1];

	snprintf(path, sizeof(path), "/proc/self/%s", per_process[which]);
	if (strcmp(per_process[which], "everything") && access(path, F_OK))
		skip("this kernel has no %s", path);
	m_fork(w, 0);
	read_by(w, which, by_self);
	verify(w);
	m_write(w, 1, T2 + 5, 3);
	m_fork(w, 1);
	read_by(w, which, by_self);
	verify(w);
	read_by(w, which, by_self);
	m_write(w, 0, T1 + TP - 3, 6);
	actor_end(w, 1);
	w->a[1].pid = getpid();		/* read_by reads us instead of the dead */
	verify(w);
	if (!by_self)
		read_by(w, which, by_self);
	verify_deep(w);
	account(w);
	world_end(w);
}

/* The files indexed by frame number, and the idle bits. */
static void frames(const struct kase *k)
{
	static const char *const files[] = { "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup",
					     "/sys/kernel/mm/page_idle/bitmap" };
	const char *path = files[k->a[0]];
	static uint64_t e[3 * TP];
	struct world *w = layout_world(L_ONE);

	if (access(path, R_OK))
		skip("this kernel has no %s", path);
	int fd = open(path, k->a[0] == 3 ? O_RDWR : O_RDONLY);

	must(fd >= 0, "%s: %s", path, strerror(errno));
	m_fork(w, 0);
	read_pagemap(w->a[1].pid, at(w, T1), 3 * TP, e);
	for (long i = 0; i < 3 * TP; i++) {
		uint64_t frame = e[i] & PM_PFN, v = ~0ULL;

		if (!(e[i] & PM_PRESENT))
			continue;
		if (k->a[0] == 3)
			(void)!pwrite(fd, &v, 8, (off_t)(frame / 64 * 8));
		(void)!pread(fd, &v, 8, (off_t)(k->a[0] == 3 ? frame / 64 * 8 : frame * 8));
		if (k->a[0] == 0 && i % 64 == 0)
			must(v >= 1, "%s of a mapped page is %llu, expected at least 1", path, (unsigned long long)v);
	}
	close(fd);
	verify(w);
	account(w);
	m_write(w, 1, T1, 3 * TP);
	verify_deep(w);
	world_end(w);
}

/* Two processes read smaps without end while two others write and fork. */
static long do_reader_loop(struct world *w, int self, const long *a)
{
	char path[64];

	for (int i = 0; i < a[0]; i++)
		for (int file = 0; file < 5; file++) {
			snprintf(path, sizeof(path), "/proc/%ld/%s", a[1], per_process[file]);
			if (file == 4)
				read_all(path, (off_t)((uintptr_t)w->base / PAGE * 8), ARENA_PAGES * 8);
			else
				read_all(path, 0, 1 << 20);
		}
	(void)self;
	return 0;
}

static void readers_race(const struct kase *k)
{
	struct world *w = layout_world(L_ONE);
	int rounds = (int)scaled(20);

	(void)k;
	m_fork(w, 0);
	m_fork(w, 0);
	for (int i = 0; i < rounds && w->actors < MAX_ACTORS; i++) {
		rpc_send(w, 2, do_reader_loop, (const long[7]){ 2, w->a[i % 2].pid });
		m_write(w, i % 2, T1 + (long)below(2 * TP), TP);
		int child = m_fork(w, i % 2);

		m_write(w, child, T1 + (long)below(2 * TP), 99);
		rpc_answer(w, 2);
		verify(w);
		actor_end(w, child);
	}
	verify_deep(w);
	account(w);
	world_end(w);
}

void cases_proc(void)
{
	static const char *const frame_files[] = {"kpagecount", "kpageflags", "kpagecgroup",
						  "page_idle"};
	char name[72];

	for (int i = 0; i < (int)(sizeof(per_process) / sizeof(per_process[0])); i++)
		for (int by_self = 0; by_self < 2; by_self++) {
			snprintf(name, sizeof(name), "proc/%s/%s", per_process[i], by_self ? "self" : "other");
			add(name, proc_reader, 0, i, by_self, i < 5 && by_self ? L_HOLES : L_ONE);
		}
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "proc/%s", frame_files[i]);
		add(name, frames, NEED_ROOT, i, 0, 0);
	}
	add("proc/readers-race", readers_race, 0, 0, 0, 0);
}
