// SPDX-License-Identifier: GPL-2.0-only
// Readers of /proc. Values in kB become pages where the name says so; everything else is as the
// kernel prints it.
#include "torture.h"

long read_file(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	while (used + 1 < size && (n = read(fd, buffer + used, size - 1 - used)) > 0)
		used += (size_t)n;
	buffer[used] = 0;
	close(fd);
	return (long)used;
}

long write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	long r = write(fd, text, strlen(text)) < 0 ? -errno : 0;

	close(fd);
	return r;
}

/* The number behind "NAME" at the beginning of a line. */
static long named_value(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
		if (!strncmp(line, name, length) && (line[length] == ':' || line[length] == ' '))
			return strtol(line + length + 1, NULL, 10);
	return -1;
}

static long value_in(const char *path, const char *name)
{
	static _Thread_local char text[32768];

	return read_file(path, text, sizeof(text)) < 0 ? -1 : named_value(text, name);
}

long vmstat(const char *name)
{
	return value_in("/proc/vmstat", name);
}

long meminfo(const char *name)
{
	return value_in("/proc/meminfo", name);
}

long status_value(pid_t pid, const char *name)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	return value_in(path, name);
}

int read_maps(pid_t pid, struct vma *v, int max)
{
	char path[40], line[512];
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	FILE *f = fopen(path, "re");

	must(f, "%s: %s", path, strerror(errno));
	while (n < max && fgets(line, sizeof(line), f)) {
		v[n].name[0] = 0;
		if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %39s", &v[n].start, &v[n].end, v[n].perms,
			   v[n].name) >= 3)
			n++;
	}
	fclose(f);
	return n;
}

size_t read_pagemap(pid_t pid, const void *from, size_t pages, uint64_t *out)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	must(fd >= 0, "%s: %s", path, strerror(errno));
	ssize_t n = pread(fd, out, pages * 8, (off_t)((uintptr_t)from / PAGE * 8));

	close(fd);
	must(n >= 0, "%s: %s", path, strerror(errno));
	return (size_t)n / 8;
}

static void smaps_line(struct smaps *s, const char *line)
{
	static const struct {
		const char *name;
		size_t field;
	} known[] = {
		{"Rss:", offsetof(struct smaps, rss)},
		{"Pss:", offsetof(struct smaps, pss)},
		{"Shared_Clean:", offsetof(struct smaps, shared)},
		{"Shared_Dirty:", offsetof(struct smaps, shared)},
		{"Private_Clean:", offsetof(struct smaps, private)},
		{"Private_Dirty:", offsetof(struct smaps, private)},
		{"Anonymous:", offsetof(struct smaps, anonymous)},
		{"Swap:", offsetof(struct smaps, swap)},
		{"Referenced:", offsetof(struct smaps, referenced)},
		{"Locked:", offsetof(struct smaps, locked)},
		{"KSM:", offsetof(struct smaps, ksm)},
		{"AnonHugePages:", offsetof(struct smaps, huge)},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(line, known[i].name, strlen(known[i].name))) {
			*(long *)((char *)s + known[i].field) += strtol(line + strlen(known[i].name), NULL, 10);
			return;
		}
}

/* Sums over the VMAs inside [from, to), in kB. */
void read_smaps(pid_t pid, const void *from, const void *to, struct smaps *s)
{
	char path[40], line[512];
	bool inside = false;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	FILE *f = fopen(path, "re");

	must(f, "%s: %s", path, strerror(errno));
	*s = (struct smaps){ 0 };
	while (fgets(line, sizeof(line), f)) {
		unsigned long start, end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
			inside = start >= (uintptr_t)from && end <= (uintptr_t)to;
			s->vmas += inside;
		} else if (inside) {
			smaps_line(s, line);
		}
	}
	fclose(f);
}

uint64_t zero_page(void)
{
	static uint64_t frame;

	if (!frame) {
		uint64_t entry = 0;
		volatile char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		must(p != MAP_FAILED, "mmap: %s", strerror(errno));
		(void)*p;
		read_pagemap(getpid(), (const void *)p, 1, &entry);
		frame = entry & PM_PFN;
		munmap((void *)p, PAGE);
	}
	return frame;
}

bool swap_is_on(void)
{
	char text[4096];

	return read_file("/proc/swaps", text, sizeof(text)) > 0 && strchr(text, '/') != NULL;
}

int online_cpus(void)
{
	return (int)sysconf(_SC_NPROCESSORS_ONLN);
}
