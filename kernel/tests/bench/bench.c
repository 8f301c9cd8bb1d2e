// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures what a fork, and the life after it, costs with copy-on-write page tables and without:
 * both in one process, the mode set just before each sample, the order of the two by chance in each
 * round, so that whatever the machine does meanwhile hits both alike.
 *
 *   bench [--rounds N] [--seed N] [--off] [--largest MB] [--only MEASURE]...
 *
 * Writes one line of JSON per sample: measure, bytes, mode, round, ns. --off: only what a kernel
 * with the option off must do as fast as one without it. Memory is anonymous, filled, without huge
 * pages, and stays the same for all samples of one size.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PR_SET_COW_FORK 0x43574601
#define MB (1ul << 20)
#define PAGE 4096ul
#define TABLE (2 * MB)
/* First writes into this many tables make one sample of the write fault. */
#define FAULTS 64
/* Forks of each forker, and how many of them at once. */
#define FORKS 12
#define FORKERS 3

enum mode { PLAIN, KERNEL };
static const char *const mode_names[] = { "plain", "kernel" };

typedef uint64_t measure_fn(unsigned char *memory, size_t bytes);

struct measure {
	const char *name;
	measure_fn *run;
	/* Kinds of memory, in MB; 0 ends the list. */
	size_t sizes[5];
	/* Also with the option off. */
	int when_off;
	/* Every so many rounds only: it takes long. */
	int every;
	/*
	 * Taken twice, and the second counts. A process forks in one mode, not in both by turns: the first
	 * fork after the other mode finds all tables in the other's state and the caches full of the
	 * other's work.
	 */
	int settled;
};

static void fail(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void reap(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		fail("waitpid");
	if (status) {
		fprintf(stderr, "bench: a child ended with status %#x\n", status);
		exit(1);
	}
}

static pid_t fork_or_fail(void)
{
	pid_t child = fork();

	if (child < 0)
		fail("fork");
	return child;
}

/* The call alone, as the parent sees it. */
static uint64_t measure_fork(unsigned char *memory, size_t bytes)
{
	(void)memory;
	(void)bytes;
	uint64_t begun = now();
	pid_t child = fork_or_fail();
	if (!child)
		_exit(0);
	uint64_t took = now() - begun;
	reap(child);
	return took;
}

/* From fork to the end of a child that does the work; its answer is the exit status. */
static uint64_t measure_child(int (*work)(unsigned char *, size_t), unsigned char *memory,
			      size_t bytes)
{
	uint64_t begun = now();
	pid_t child = fork_or_fail();
	if (!child)
		_exit(work(memory, bytes));
	reap(child);
	return now() - begun;
}

static int write_one(unsigned char *memory, size_t bytes)
{
	*(volatile unsigned char *)(memory + bytes / 2) = 1;
	return 0;
}

static int read_all(unsigned char *memory, size_t bytes)
{
	unsigned int sum = 0;

	for (size_t at = 0; at < bytes; at += PAGE)
		sum += *(volatile unsigned char *)(memory + at);
	/* Every page holds the same: a wrong one is noticed. */
	return sum != (unsigned int)(bytes / PAGE) * memory[0];
}

static int write_all(unsigned char *memory, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PAGE)
		*(volatile unsigned char *)(memory + at) = 7;
	return 0;
}

static uint64_t measure_write_one(unsigned char *memory, size_t bytes)
{
	return measure_child(write_one, memory, bytes);
}

static uint64_t measure_read_all(unsigned char *memory, size_t bytes)
{
	return measure_child(read_all, memory, bytes);
}

static uint64_t measure_write_all(unsigned char *memory, size_t bytes)
{
	return measure_child(write_all, memory, bytes);
}

static int by_value(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static uint64_t median(uint64_t *values, size_t count)
{
	qsort(values, count, sizeof *values, by_value);
	return values[count / 2];
}

/* A number from a child by a pipe. */
static uint64_t receive(int from)
{
	uint64_t value;

	if (read(from, &value, sizeof value) != sizeof value)
		fail("no answer of a child");
	return value;
}

/*
 * The first write into a table, by a child: with plain page tables a copied page, with shared ones
 * the copy of the table before it. The median of FAULTS such writes, each into a table of its own.
 */
static uint64_t measure_fault(unsigned char *memory, size_t bytes)
{
	int ends[2];

	if (pipe(ends))
		fail("pipe");
	pid_t child = fork_or_fail();
	if (!child) {
		uint64_t took[FAULTS], result;
		/* The first tables may be private already: begin behind them. */
		for (size_t i = 0; i < FAULTS; i++) {
			volatile unsigned char *at =
				memory + (i + 2) * (bytes / (FAULTS + 4) / TABLE) * TABLE +
				5 * PAGE;
			uint64_t begun = now();
			*at = 1;
			took[i] = now() - begun;
		}
		result = median(took, FAULTS);
		(void)!write(ends[1], &result, sizeof result);
		_exit(0);
	}
	uint64_t result = receive(ends[0]);
	close(ends[0]);
	close(ends[1]);
	reap(child);
	return result;
}

/*
 * Forkers share one parent's tables, the hardest case for a lock in a table: each forks FORKS
 * times, all begin when the last is ready. The median fork of all of them.
 */
static uint64_t forkers(int count)
{
	int go[2], answers[2];
	uint64_t took[FORKERS * FORKS];
	pid_t children[FORKERS];

	if (pipe(go) || pipe(answers))
		fail("pipe");
	for (int i = 0; i < count; i++) {
		children[i] = fork_or_fail();
		if (children[i])
			continue;
		char word;
		close(go[1]);
		(void)!read(go[0], &word, 1);
		uint64_t own[FORKS];
		for (int j = 0; j < FORKS; j++)
			own[j] = measure_fork(NULL, 0);
		(void)!write(answers[1], own, sizeof own);
		_exit(0);
	}
	usleep(2000);
	close(go[1]);
	for (int i = 0; i < count * FORKS; i++)
		took[i] = receive(answers[0]);
	for (int i = 0; i < count; i++)
		reap(children[i]);
	close(go[0]);
	close(answers[0]);
	close(answers[1]);
	return median(took, count * FORKS);
}

static uint64_t measure_one_forker(unsigned char *memory, size_t bytes)
{
	(void)memory;
	(void)bytes;
	return forkers(1);
}

static uint64_t measure_forkers(unsigned char *memory, size_t bytes)
{
	(void)memory;
	(void)bytes;
	return forkers(FORKERS);
}

static const struct measure measures[] = {
	/* 4 MB: what any process pays. */
	{ "fork", measure_fork, { 4, 512, 1024, 2048, 0 }, 1, 1, 1 },
	{ "write-one", measure_write_one, { 4, 1024, 0 }, 0, 1, 1 },
	{ "read-all", measure_read_all, { 1024, 0 }, 0, 1, 0 },
	{ "write-all", measure_write_all, { 512, 0 }, 0, 3, 0 },
	{ "fault", measure_fault, { 512, 0 }, 1, 1, 0 },
	{ "one-forker", measure_one_forker, { 512, 0 }, 0, 1, 0 },
	{ "three-forkers", measure_forkers, { 512, 0 }, 0, 1, 0 },
};

#define MEASURES (sizeof measures / sizeof *measures)

/* The measures to take; none named: all. */
static const char *wanted[MEASURES];
static size_t wanted_count;

static int is_wanted(const struct measure *measure)
{
	for (size_t i = 0; i < wanted_count; i++)
		if (!strcmp(wanted[i], measure->name))
			return 1;
	return !wanted_count;
}

static int set_mode(enum mode mode)
{
	return prctl(PR_SET_COW_FORK, mode, 0, 0, 0);
}

static void sample(const struct measure *measure, unsigned char *memory, size_t bytes, int round,
		   enum mode mode)
{
	if (set_mode(mode) && mode == KERNEL)
		fail("prctl");
	uint64_t took = measure->run(memory, bytes);
	if (measure->settled)
		took = measure->run(memory, bytes);
	printf("{\"measure\":\"%s\",\"bytes\":%zu,\"mode\":\"%s\",\"round\":%d,\"ns\":%llu}\n",
	       measure->name, bytes, mode_names[mode], round, (unsigned long long)took);
	fflush(stdout);
}

/* One round of all measures at this size, the modes in an order by chance. Round 0 warms up and is
 * not shown. */
static void one_size(size_t bytes, int rounds, int off, int has_kernel)
{
	unsigned char *memory = mmap(NULL, bytes + TABLE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap");
	memory = (unsigned char *)(((uintptr_t)memory + TABLE - 1) & ~(TABLE - 1));
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	memset(memory, 1, bytes);
	for (int round = 1; round <= rounds; round++) {
		for (size_t i = 0; i < MEASURES; i++) {
			const struct measure *measure = &measures[i];
			int fits = 0;
			for (const size_t *size = measure->sizes; *size; size++)
				fits |= *size * MB == bytes;
			if (!fits || !is_wanted(measure) || (off && !measure->when_off) || (round - 1) % measure->every)
				continue;
			enum mode first = rand() & 1;
			for (int turn = 0; turn < 2; turn++) {
				enum mode mode = first ^ turn;
				if (mode == PLAIN || (has_kernel && !off))
					sample(measure, memory, bytes, round, mode);
			}
		}
	}
	munmap(memory, bytes);
}

int main(int count, char **words)
{
	int rounds = 15, off = 0;
	size_t largest = 2048;

	srand(1);
	for (int i = 1; i < count; i++) {
		const char *value = i + 1 < count ? words[i + 1] : "";
		if (!strcmp(words[i], "--off"))
			off = 1;
		else if (!strcmp(words[i], "--rounds"))
			rounds = atoi(value), i++;
		else if (!strcmp(words[i], "--seed"))
			srand(atoi(value)), i++;
		else if (!strcmp(words[i], "--largest"))
			largest = atoi(value), i++;
		else if (!strcmp(words[i], "--only") && wanted_count < MEASURES)
			wanted[wanted_count++] = value, i++;
		else {
			fprintf(stderr, "usage: bench [--rounds N] [--seed N] [--off] [--largest "
					"MB] [--only MEASURE]...\n");
			return 2;
		}
	}
	int has_kernel = !set_mode(KERNEL);
	if (!has_kernel && !off)
		fprintf(stderr, "bench: this kernel has no copy-on-write page tables; only plain is measured\n");
	static const size_t sizes[] = { 4, 512, 1024, 2048 };
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (sizes[i] <= (off ? 512 : largest))
			one_size(sizes[i] * MB, rounds, off, has_kernel);
	return 0;
}
