// odtest: expect=frozen mem=200 user=any
/*
 * Memory is to be wiped in children, below limits that leave no room for a copy of it, or for one
 * more process, or for a descriptor. On stock the advice takes nothing, so it succeeds: children
 * see zeros, the process itself its content.
 */
#include "proc_region.h"

static const size_t BYTES = 48 * OD_MB;

struct fence {
    const char *name;
    int what;
    rlim_t value;
};

static const struct fence FENCES[] = {
    { "address space", RLIMIT_AS, 1 << 20 }, { "data", RLIMIT_DATA, 1 << 20 },
    { "processes", RLIMIT_NPROC, 1 },        { "open files", RLIMIT_NOFILE, 0 },
    { "file size", RLIMIT_FSIZE, 0 },        { "locked memory", RLIMIT_MEMLOCK, 0 },
    { "stack", RLIMIT_STACK, 64 << 10 },
};
enum { FENCE_COUNT = sizeof FENCES / sizeof *FENCES };

static void advise_below(const struct fence *fence, int hard)
{
    void *region = region_new(BYTES, 7);
    od_freeze();
    region_look(region, BYTES, 7, fence->name);
    struct rlimit before, limit;
    OK(getrlimit(fence->what, &before));
    limit = (struct rlimit){ fence->value, hard ? fence->value : before.rlim_max };
    OK(setrlimit(fence->what, &limit));
    size_t begin = 5 * OD_PAGE, wiped = 8 * OD_MB;
    char *part = (char *)region + begin;
    int answer = madvise(part, wiped, MADV_WIPEONFORK);
    CHECK(answer == 0, "%s%s: madvise: %s", fence->name, hard ? " (hard)" : "", strerror(errno));
    region_check(region, BYTES, 7, REGION_STEP, fence->name);
    if (!hard)
        OK(setrlimit(fence->what, &before));
    pid_t pid = fork();
    if (pid == 0) {
        od_verify_zero(part, wiped, fence->name);
        od_verify_at(part + wiped, BYTES - begin - wiped, 7, (begin + wiped) / 8, fence->name);
        _exit(0);
    }
    if (pid > 0)
        od_join(pid);
    else
        CHECK(hard && fence->what == RLIMIT_NPROC, "%s: fork: %s", fence->name, strerror(errno));
    munmap(region, BYTES);
}

static void in_child(void *fence) { advise_below(fence, 1); }

int main(void)
{
    for (int i = 0; i < FENCE_COUNT; i++) {
        advise_below(&FENCES[i], 0);
        od_run_child(in_child, (void *)&FENCES[i]);
    }
    return od_done();
}
