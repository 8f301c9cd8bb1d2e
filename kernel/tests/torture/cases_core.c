// SPDX-License-Identifier: GPL-2.0-only
// Core dumps of processes that share tables: the dump holds what the process held, and nobody else
// loses a byte.
#include "torture.h"
#include <elf.h>
#include <sys/resource.h>
#include <sys/stat.h>

static long do_abort(struct world *w, int self, const long *a)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	(void)w, (void)self, (void)a;
	setrlimit(RLIMIT_CORE, &all);
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	signal(SIGABRT, SIG_DFL);
	abort();
}

/* Compares what the dump has of the arena with the model; the number of pages found. */
static long compare_core(const struct world *w, int a, int fd)
{
	Elf64_Ehdr e;
	static char page[PAGE];
	long found = 0;

	must(pread(fd, &e, sizeof(e), 0) == sizeof(e) && !memcmp(e.e_ident, ELFMAG, 4),
	     "the core dump is no ELF file");
	for (int i = 0; i < e.e_phnum; i++) {
		Elf64_Phdr h;

		must(pread(fd, &h, sizeof(h), (off_t)(e.e_phoff + (size_t)i * sizeof(h))) ==
			     sizeof(h),
		     "the core dump is cut off");
		for (uint64_t o = 0; h.p_type == PT_LOAD && o + PAGE <= h.p_filesz; o += PAGE) {
			long p = (long)((h.p_vaddr + o - (uintptr_t)w->base) / PAGE);

			if (h.p_vaddr + o < (uintptr_t)w->base || p >= ARENA_PAGES)
				continue;
			must(pread(fd, page, PAGE, (off_t)(h.p_offset + o)) == (ssize_t)PAGE,
			     "the core dump is cut off");
			must(page_is(page, w->a[a].page[p].key),
			     "page %ld in the core dump of actor %d is not what it held", p, a);
			found++;
		}
	}
	return found;
}

static void core_dump(const struct kase *k)
{
	char pattern[128], dir[200], name[300];
	int who = (int)k->a[0];

	read_file("/proc/sys/kernel/core_pattern", pattern, sizeof(pattern));
	pattern[strcspn(pattern, "\n")] = 0;
	if (strcmp(pattern, "core"))
		skip("core_pattern is '%s', needed: 'core'", pattern);
	snprintf(dir, sizeof(dir), "%s/torture-core.%d", opt.dir, getpid());
	must(mkdir(dir, 0700) == 0 && chdir(dir) == 0, "%s: %s", dir, strerror(errno));
	remove_later(dir);
	struct world *w = layout_world(L_ONE);

	m_fork(w, 0);
	m_write(w, 1, T2 + 5, 9);
	rpc_send(w, who, do_abort, (const long[7]){ 0 });
	int status;

	waitpid(w->a[who].pid, &status, __WALL);
	w->a[who].live = false;
	snprintf(name, sizeof(name), "%s/core", dir);
	int fd = open(name, O_RDONLY);

	if (fd < 0) {
		snprintf(name, sizeof(name), "%s/core.%d", dir, w->a[who].pid);
		fd = open(name, O_RDONLY);
	}
	unlink(name);
	(void)!chdir("/");
	rmdir(dir);
	if (fd < 0)
		skip("the kernel wrote no core dump (wait status 0x%x)", status);
	long found = compare_core(w, who, fd);

	must(found == 3 * TP, "the core dump has %ld pages of the arena, expected %d", found, 3 * TP);
	verify_deep(w);
	world_end(w);
}

void cases_core(void)
{
	add("life/core-parent", core_dump, 0, 0, 0, 0);
	add("life/core-child", core_dump, 0, 1, 0, 0);
}
