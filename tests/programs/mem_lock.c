/* mlock, mlock2, mlockall and their limit: the same answers, the same bytes, locked before and
 * after freezing. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (16 * OD_MB)

static char *world, *other;

static void show(const char *what, int result)
{
    printf("%s: %s\n", what, result == 0 ? "done" : strerrorname_np(errno));
}

static long locked_kb(void) { return od_proc_kb("/proc/self/status", "VmLck:"); }

static void child(void *argument)
{
    od_verify(world, SIZE, *(uint64_t *)argument, "child");
    printf("locked in the child: %ld kB\n", locked_kb()); /* locks are not inherited */
    od_fill(world, SIZE, 99);
    od_refreeze();
    od_verify(world, SIZE, 99, "child after its own writes");
}

static void lock_and_drop(uint64_t gen)
{
    od_fill(world, SIZE, gen);
    show("mlock 6 MB", mlock(world + OD_MB, 6 * OD_MB));
    printf("locked: %ld kB\n", locked_kb());
    od_run_child(child, &gen);
    od_verify(world, SIZE, gen, "parent");
    show("DONTNEED on locked memory", madvise(world + 2 * OD_MB, OD_MB, MADV_DONTNEED));
    od_verify(world, SIZE, gen, "parent after a refused DONTNEED");
    if (madvise(world + 2 * OD_MB, OD_MB, 24 /* MADV_DONTNEED_LOCKED, Linux 5.18 */) == 0) {
        od_verify_zero(world + 2 * OD_MB, OD_MB, "after DONTNEED_LOCKED");
        od_fill_at(world + 2 * OD_MB, OD_MB, gen, 2 * OD_MB / 8);
    }
    od_refreeze();
    od_run_child(child, &gen);
    printf("locked: %ld kB\n", locked_kb());
    show("munlock the middle", munlock(world + 3 * OD_MB, OD_MB));
    printf("locked: %ld kB\n", locked_kb());
    od_run_child(child, &gen);
    show("munlock", munlock(world, SIZE));
    printf("locked: %ld kB\n", locked_kb());
    show("mlock2 on fault", mlock2(world, 4 * OD_MB, MLOCK_ONFAULT));
    od_run_child(child, &gen);
    show("munlock", munlock(world, SIZE));
    show("mlock across a hole", mlock(other, 3 * SIZE));
    show("munlock across a hole", munlock(other, 3 * SIZE));
}

/* The kernel does not come to what lies behind the lock. A change of access that was refused
 * half-way leaves it to the helper task to find that out. */
static void drop_up_to_a_lock(uint64_t gen)
{
    char *at = od_map(SIZE);
    const size_t from = 4 * OD_MB, lock = 8 * OD_MB, end = SIZE - OD_PAGE;
    od_fill(at, SIZE, gen);
    od_freeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
    OK(munmap(at + end, OD_PAGE));
    CHECK(mprotect(at + from, SIZE - from, PROT_READ | PROT_WRITE) < 0, "mprotect of a hole");
    show("mlock a page", mlock(at + lock, OD_PAGE));
    show("DONTNEED up to it and on", madvise(at + from, 2 * lock - from - OD_PAGE, MADV_DONTNEED));
    od_verify(at, from, gen, "before what is dropped");
    od_verify_zero(at + from, lock - from, "what is dropped");
    od_verify_at(at + lock, end - lock, gen, lock / 8, "from the lock on");
    OK(munmap(at, end));
}

/* A soft limit of 8 MB, and no privilege to ignore it: only a child drops it. */
static void limited(void *argument)
{
    struct rlimit limit = {8 * OD_MB, 8 * OD_MB};
    OK(setrlimit(RLIMIT_MEMLOCK, &limit));
    if (geteuid() == 0)
        OK(setuid(65534));
    show("limited: mlock 7 MB", mlock(world, 7 * OD_MB));
    show("limited: mlock 2 MB more", mlock(world + 8 * OD_MB, 2 * OD_MB));
    show("limited: mlock the same again", mlock(world, 7 * OD_MB));
    show("limited: mlockall", mlockall(MCL_CURRENT));
    od_run_child(child, argument);
    od_fill(world, SIZE, 8);
    od_refreeze();
    od_verify(world, SIZE, 8, "limited");
    show("limited: mlock 2 MB more", mlock(world + 8 * OD_MB, 2 * OD_MB));
    show("limited: mlock none", mlock(world + 8 * OD_MB, 0));
}

static void all_locked(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &limit);
    show("mlockall", mlockall(MCL_CURRENT | MCL_FUTURE));
    od_run_child(child, argument);
    char *more = mmap(NULL, 8 * OD_MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more != MAP_FAILED) {
        od_fill(more, 8 * OD_MB, gen + 1);
        od_run_child(child, argument);
        od_verify(more, 8 * OD_MB, gen + 1, "mapped while locked");
    }
    od_refreeze();
    od_run_child(child, argument);
    od_verify(world, SIZE, gen, "all locked");
    show("munlockall", munlockall());
    printf("locked: %ld kB\n", locked_kb());
    od_run_child(child, argument);
}

int main(void)
{
    world = od_map(SIZE);
    other = od_map(3 * SIZE);
    OK(munmap(other + SIZE, SIZE));
    struct rlimit limit = {32 * OD_MB, RLIM_INFINITY};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        printf("the limit stays as it was\n");
    for (uint64_t gen = 1; gen < 4; gen++) {
        lock_and_drop(gen);
        drop_up_to_a_lock(gen);
        od_run_child(limited, &gen);
        od_run_child(all_locked, &gen);
    }
    return od_done();
}
