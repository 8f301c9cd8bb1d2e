/* 64 GB reserved and hardly touched: one page in each GB, then one in each 2 MB of 24 GB.
 * It stays sparse: neither the process nor shared memory may grow by more than what was touched
 * allows. */
// odtest: needs=overcommit serial=yes timeout=90 mem=900
#include "odtest.h"

#define RESERVED ((size_t)64 << 30)
#define DENSE ((size_t)24 << 30)
#define COMPANION (16 * OD_MB)
#define LIMIT_KB (400 * 1024) /* 48 MB are touched; an image of whole 2 MB blocks would be 24 GB */

static char *wide, *companion;

static size_t step_of(size_t at) { return at < DENSE ? 2 * OD_MB : (size_t)1 << 30; }

static void each(uint64_t gen, int write_it, size_t upto)
{
    for (size_t at = 0; at < upto; at += step_of(at)) {
        uint64_t *word =
            (uint64_t *)(wide + at + at / OD_MB % 500 * OD_PAGE % (2 * OD_MB - OD_PAGE));
        if (write_it)
            *word = gen + at;
        else
            CHECK(*word == gen + at, "at %zu MB: %llx", at / OD_MB, (unsigned long long)*word);
    }
}

/* Around the touched pages there are zeros (reading them is not for free: a few places only). */
static void zeros_between(void)
{
    for (size_t at = OD_MB; at < RESERVED; at += (size_t)7 << 30)
        od_verify_zero(wide + (at | (2 * OD_MB - OD_PAGE)), OD_PAGE, "untouched memory");
}

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    each(gen, 0, RESERVED);
    od_verify(companion, COMPANION, gen, "companion in the child");
    each(gen + 1, 1, DENSE / 4);
    zeros_between();
}

static void check_growth(long shared_before, const char *when)
{
    long shared = 0, own = 0;
    for (int wait = 0; wait < 30; wait++) {
        shared = od_proc_kb("/proc/meminfo", "Shmem:") - shared_before;
        own = od_proc_kb("/proc/self/status", "VmRSS:");
        if (shared < LIMIT_KB && own < LIMIT_KB)
            return;
        poll(NULL, 0, 100);
    }
    FAIL("%s: shared memory grew by %ld kB, the process holds %ld kB", when, shared, own);
}

int main(void)
{
    uint64_t gen = 100;
    wide = mmap(NULL, RESERVED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    if (wide == MAP_FAILED)
        od_skip("cannot reserve 64 GB: %s", strerror(errno));
    od_small_pages(wide, RESERVED);
    companion = od_map(COMPANION);
    long shared_before = od_proc_kb("/proc/meminfo", "Shmem:");
    for (size_t at = 0; at < RESERVED; at += (size_t)1 << 30) /* one page in each GB */
        *(uint64_t *)(wide + at) = at;
    od_fill(companion, COMPANION, gen);
    od_run_child((void (*)(void *))od_refreeze, NULL);
    check_growth(shared_before, "one page in each GB");
    for (size_t at = 0; at < RESERVED; at += (size_t)1 << 30)
        CHECK(*(uint64_t *)(wide + at) == at, "page at %zu GB", at >> 30);
    for (int round = 0; round < 4; round++) {
        gen += 10;
        each(gen, 1, RESERVED);
        od_fill(companion, COMPANION, gen);
        od_run_child(child, &gen);
        each(gen, 0, RESERVED);
        od_refreeze();
        check_growth(shared_before, "one page in each 2 MB");
    }
    zeros_between();
    OK(madvise(wide, RESERVED, MADV_DONTNEED));
    for (size_t at = 0; at < RESERVED; at += (size_t)1 << 30)
        CHECK(*(uint64_t *)(wide + at) == 0, "after DONTNEED of everything: %zu GB", at >> 30);
    check_growth(shared_before, "after DONTNEED of everything");
    OK(munmap(wide, RESERVED));
    return od_done();
}
