// SPDX-License-Identifier: GPL-2.0-only
// One case: a process group of its own, a time limit, one verdict, and nothing left behind.
// Every process of the case can give a verdict. It writes its own slot of shared memory and then
// publishes the slot's number by one compare-and-swap: the first published verdict counts, and a
// half-written one is never visible.
#include "torture.h"
#include <dirent.h>
#include <poll.h>

#define MOST_VERDICTS 128	/* of one case: more than it has actors */

static struct {
	_Atomic int published;	/* slot number + 1; 0: no verdict yet */
	_Atomic int claimed;	/* slots in use */
	char context[200], leftover[200];
	struct { enum verdict kind; char text[1900]; } slot[MOST_VERDICTS];
} *result;
uint64_t case_seed;
static uint64_t random_state;

uint64_t mix(uint64_t x)
{
	x += STEP;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

uint64_t rnd(void)
{
	return mix(random_state++);
}

size_t below(size_t n)
{
	return rnd() % n;
}

long scaled(long n)
{
	return opt.quick ? (n + 4) / 5 : n;
}

void *shared_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED, "no %zu bytes of shared memory: %s", size, strerror(errno));
	return p;
}

static _Noreturn void give_verdict(enum verdict kind, const char *fmt, va_list list)
{
	int number = atomic_fetch_add(&result->claimed, 1), none = 0;

	if (number < MOST_VERDICTS) {
		char *text = result->slot[number].text;
		size_t size = sizeof(result->slot[number].text);
		int n = snprintf(text, size, "%s", result->context);

		result->slot[number].kind = kind;
		vsnprintf(text + n, size - n, fmt, list);
		atomic_compare_exchange_strong(&result->published, &none, number + 1);
	}
	/* Whoever ends with this status promises that a verdict can be read. */
	while (atomic_load(&result->published) == 0)
		usleep(1000);
	_exit(VERDICT_GIVEN);
}

void context(const char *fmt, ...)
{
	va_list list;

	va_start(list, fmt);
	vsnprintf(result->context, sizeof(result->context), fmt, list);
	va_end(list);
}

void remove_later(const char *path)
{
	snprintf(result->leftover, sizeof(result->leftover), "%s", path);
}

_Noreturn void fail_at(const char *file, int line, const char *fmt, ...)
{
	char longer[512];
	const char *name = strrchr(file, '/');
	va_list list;

	snprintf(longer, sizeof(longer), "%s (%s:%d)", fmt, name ? name + 1 : file, line);
	va_start(list, fmt);
	give_verdict(FAILED, longer, list);
}

_Noreturn void skip(const char *fmt, ...)
{
	va_list list;

	va_start(list, fmt);
	give_verdict(SKIPPED, fmt, list);
}

void wait_ok(pid_t pid, const char *who)
{
	int status;

	while (waitpid(pid, &status, __WALL) < 0)
		must(errno == EINTR, "waiting for %s: %s", who, strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	if (WIFEXITED(status) && WEXITSTATUS(status) == VERDICT_GIVEN)
		_exit(VERDICT_GIVEN);
	fail("%s ended with wait status 0x%x, expected exit 0", who, status);
}

/* What the processes of a hung case wait for: the first thing one wants to know. */
static void describe_group(pid_t group, char *out, size_t size)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	size_t used = strlen(out);
	int shown = 0;

	while (d && (e = readdir(d)) != NULL && used + 100 < size && shown < 12) {
		char path[300], text[512], wchan[64] = "";
		char state = 0;
		int pid = atoi(e->d_name), parent, pgrp = 0;

		snprintf(path, sizeof(path), "/proc/%d/stat", pid);
		if (pid <= 0 || read_file(path, text, sizeof(text)) < 0)
			continue;
		char *close = strrchr(text, ')');

		if (!close || sscanf(close + 1, " %c %d %d", &state, &parent, &pgrp) != 3 || pgrp != group)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/wchan", pid);
		read_file(path, wchan, sizeof(wchan));
		shown++;
		used += (size_t)snprintf(out + used, size - used, "; process %d %c in %s", pid, state, wchan);
	}
	if (d)
		closedir(d);
}

static void reap_group(pid_t group, int limit_seconds, char *message, size_t size, enum verdict *v)
{
	for (int turn = 0;; turn++) {
		kill(-group, SIGKILL);
		pid_t pid = waitpid(-1, NULL, WNOHANG | __WALL);

		if (pid < 0)
			return;
		if (pid > 0)
			continue;
		usleep(turn < 100 ? 200 : 10000);
		if (turn / 100 > limit_seconds) {
			snprintf(message, size, "processes survive SIGKILL");
			describe_group(group, message, size);
			*v = FAILED;
			return;
		}
	}
}

static _Noreturn void case_process(const struct kase *k)
{
	case_seed = opt.seed;
	for (const char *c = k->name; *c; c++)
		case_seed = mix(case_seed ^ (uint64_t)*c);
	random_state = case_seed;
	setpgid(0, 0);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	cow_apply_mode();
	k->run(k);
	_exit(0);
}

enum verdict run_case(const struct kase *k, char *message, size_t size)
{
	int limit = opt.slow ? 600 : 60, status = 0;
	enum verdict v = PASSED;

	if (!result)
		result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	atomic_store(&result->published, 0);
	atomic_store(&result->claimed, 0);
	result->context[0] = result->leftover[0] = 0;
	fflush(stdout);
	pid_t pid = fork();

	if (pid == 0)
		case_process(k);
	if (pid < 0) {
		snprintf(message, size, "fork: %s", strerror(errno));
		return FAILED;
	}
	setpgid(pid, pid);
	struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };

	if (poll(&p, 1, limit * 1000) == 0) {
		snprintf(message, size, "not finished after %d s (time limit)", limit);
		describe_group(pid, message, size);
		v = FAILED;
		kill(-pid, SIGKILL);
	}
	close(p.fd);
	waitpid(pid, &status, 0);
	int published = atomic_load(&result->published);

	if (v == PASSED && published > 0) {
		v = result->slot[published - 1].kind;
		snprintf(message, size, "%s", result->slot[published - 1].text);
	} else if (v == PASSED && status != 0) {
		v = FAILED;
		snprintf(message, size, "the case's process ended with wait status 0x%x", status);
	}
	reap_group(pid, limit, message, size, &v);
	if (result->leftover[0])
		remove(result->leftover);
	return v;
}
