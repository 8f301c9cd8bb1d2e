// SPDX-License-Identifier: GPL-2.0-only
// A memory cgroup of the case's own, version 2 or 1, wherever the machine has it mounted; in a
// guest it is mounted.
#include "torture.h"
#include <sys/mount.h>
#include <sys/stat.h>

static long put(const struct cgroup *g, const char *file, const char *text)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", g->dir, file);
	return write_file(path, text);
}

static bool usable_v2(const char *mount_point)
{
	char path[300], text[400];

	snprintf(path, sizeof(path), "%s/cgroup.controllers", mount_point);
	if (read_file(path, text, sizeof(text)) <= 0 || !strstr(text, "memory"))
		return false;
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", mount_point);
	write_file(path, "+memory");
	return true;
}

static bool find(char *where, size_t size, bool *v2)
{
	char line[512], dir[160], type[40], options[300];
	FILE *f = fopen("/proc/mounts", "re");
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %159s %39s %299s", dir, type, options) != 3)
			continue;
		if (!strcmp(type, "cgroup2") && usable_v2(dir))
			found = *v2 = true;
		else if (!strcmp(type, "cgroup") && strstr(options, "memory"))
			found = true, *v2 = false;
	}
	if (f)
		fclose(f);
	if (found)
		snprintf(where, size, "%s", dir);
	return found;
}

bool cgroup_make(struct cgroup *g)
{
	char where[160];

	*g = (struct cgroup){ 0 };
	if (geteuid())
		return false;
	if (!find(where, sizeof(where), &g->v2)) {
		if (!opt.guest)
			return false;
		mkdir("/sys/fs/cgroup", 0755);
		if (mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL) || !find(where, sizeof(where), &g->v2))
			return false;
	}
	snprintf(g->dir, sizeof(g->dir), "%s/torture.%d", where, getpid());
	remove_later(g->dir);
	return mkdir(g->dir, 0755) == 0;
}

void cgroup_enter(const struct cgroup *g, pid_t pid)
{
	char text[20];

	snprintf(text, sizeof(text), "%d", pid);
	long r = put(g, "cgroup.procs", text);

	must(r == 0, "%s/cgroup.procs: %s", g->dir, strerror((int)-r));
}

long cgroup_limit(const struct cgroup *g, long bytes)
{
	char text[24];

	if (bytes < 0)
		return put(g, g->v2 ? "memory.max" : "memory.limit_in_bytes", g->v2 ? "max" : "-1");
	snprintf(text, sizeof(text), "%ld", bytes);
	return put(g, g->v2 ? "memory.max" : "memory.limit_in_bytes", text);
}

long cgroup_no_swap(const struct cgroup *g, long bytes)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", bytes);
	return g->v2 ? put(g, "memory.swap.max", "0") : put(g, "memory.memsw.limit_in_bytes", text);
}

/* Version 1 can only be asked for everything there is: by a low limit for a moment. */
long cgroup_reclaim(const struct cgroup *g, long bytes)
{
	char text[24];

	if (g->v2) {
		snprintf(text, sizeof(text), "%ld", bytes);
		return put(g, "memory.reclaim", text);
	}
	return put(g, "memory.force_empty", "0");
}

/* The processes inside must be gone. */
void cgroup_remove(struct cgroup *g)
{
	for (int turn = 0; g->dir[0] && turn < 200 && rmdir(g->dir) && errno == EBUSY; turn++)
		usleep(10000);
	g->dir[0] = 0;
}
