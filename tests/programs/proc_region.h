/* A patterned region and the life of a process around it, for the programs proc_*.c and thr_*.c.
 *
 * Owns: one region of whole words of one generation, a child that looks at it, and growing old: the
 * state after several forks, dirty pages, freezes and folds. Checks and children themselves are
 * odtest.h's. A looking child compares every 64th word, eight in each page. */
#ifndef PROC_REGION_H
#define PROC_REGION_H
#include "odtest.h"
#include <time.h>

enum { REGION_STEP = 64 };

static OD_UNUSED void *region_new(size_t bytes, uint64_t gen)
{
    void *region = od_map(bytes);
    od_small_pages(region, bytes); /* an eager process notices it */
    od_fill(region, bytes, gen);
    return region;
}

/* Compares every `step`-th word with the pattern. */
static OD_UNUSED void region_check(const void *region, size_t bytes, uint64_t gen, size_t step,
                                   const char *when)
{
    const volatile uint64_t *word = region;
    for (size_t i = 0; i < bytes / 8; i += step)
        CHECK(word[i] == od_word(gen, i), "%s: word %zu (page %zu, %p) holds %#llx, want %#llx",
              when, i, i / 512, (const void *)(word + i), (unsigned long long)word[i],
              (unsigned long long)od_word(gen, i));
}

/* Forks a child that compares a sample of the region, and waits for it. */
static OD_UNUSED void region_look(const void *region, size_t bytes, uint64_t gen, const char *when)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "%s: fork: %s", when, strerror(errno));
    if (pid == 0) {
        region_check(region, bytes, gen, REGION_STEP, when);
        _exit(0);
    }
    od_join(pid);
}

/* Makes pages dirty without changing what they hold: one in four, others in each round. */
static OD_UNUSED void region_touch(void *region, size_t bytes, uint64_t gen, size_t round)
{
    volatile uint64_t *word = region;
    for (size_t i = round % 4 * 512; i < bytes / 8; i += 2048)
        word[i] = od_word(gen, i);
}

/* Brings the process to its late state: forks, dirty pages and folds behind it. */
static OD_UNUSED void region_grow_old(void *region, size_t bytes, uint64_t gen)
{
    for (size_t round = 0; round < 5; round++) {
        region_touch(region, bytes, gen, round);
        region_look(region, bytes, gen, "growing old");
        od_refreeze();
    }
}

static OD_UNUSED double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#endif
