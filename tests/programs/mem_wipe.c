/* WIPEONFORK, DONTFORK and guard regions, set before the freeze and on memory already frozen. */
// odtest: timeout=60
#include "odtest.h"
#include <setjmp.h>

#define SIZE (24 * OD_MB)
#define PART (4 * OD_MB + OD_PAGE) /* 'special' pages start here and are this long */

static char *world;
static sigjmp_buf back;

static void on_fault(int sig) { siglongjmp(back, sig); }

static int faults(char *at)
{
    int caught = sigsetjmp(back, 1);
    if (caught == 0)
        *(volatile char *)at;
    return caught;
}

static void verify_around(uint64_t gen, const char *who)
{
    od_verify(world, PART, gen, who);
    od_verify_at(world + 2 * PART, SIZE - 2 * PART, gen, 2 * PART / 8, who);
}

static void wiped(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    verify_around(gen, "around the wiped part");
    od_verify_zero(world + PART, PART, "the wiped part");
    od_fill_at(world + PART, PART, gen, PART / 8);
    od_refreeze();
    pid_t pid = od_fork(); /* the child's own child finds it wiped again */
    if (pid == 0) {
        od_verify_zero(world + PART, PART, "the part wiped in a grandchild");
        _exit(0);
    }
    od_join(pid);
    od_verify(world, SIZE, gen, "the child's own");
}

static void kept(void *argument) { od_verify(world, SIZE, *(uint64_t *)argument, "kept"); }

static void absent(void *argument)
{
    verify_around(*(uint64_t *)argument, "around the part that is not forked");
    for (size_t at = PART; at < 2 * PART; at += 64 * OD_PAGE)
        CHECK(faults(world + at) == SIGSEGV, "memory with DONTFORK is there in the child");
    unsigned char vector[1];
    CHECK(mincore(world + PART, OD_PAGE, vector) == -1 && errno == ENOMEM,
          "DONTFORK memory is mapped");
    od_refreeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
}

static void guarded(void *argument)
{
    verify_around(*(uint64_t *)argument, "around the guard region");
    for (size_t at = PART; at < 2 * PART; at += 64 * OD_PAGE)
        CHECK(faults(world + at) == SIGSEGV, "a guard region can be read in the child");
}

/* `late`: memory is frozen before the advice, too. */
static void try_all(int late, uint64_t gen)
{
    od_fill(world, SIZE, gen);
    if (late)
        od_run_child(kept, &gen);
    OK(madvise(world + PART, PART, MADV_WIPEONFORK));
    od_run_child(wiped, &gen);
    od_verify(world, SIZE, gen, "the parent's own");
    od_refreeze();
    od_run_child(wiped, &gen);
    OK(madvise(world + PART, PART, MADV_KEEPONFORK));
    od_run_child(kept, &gen);
    OK(syscall(SYS_madvise, world + PART, PART, MADV_DONTFORK));
    od_run_child(absent, &gen);
    od_fill(world, SIZE, gen + 1);
    gen++;
    od_refreeze();
    od_run_child(absent, &gen);
    OK(madvise(world + PART, PART, MADV_DOFORK));
    od_run_child(kept, &gen);
    if (madvise(world + PART, PART, 102 /* MADV_GUARD_INSTALL, Linux 6.13 */) == 0) {
        guarded(&gen);
        od_run_child(guarded, &gen);
        od_refreeze();
        od_run_child(guarded, &gen);
        OK(madvise(world + PART, PART, 103));
        od_verify_zero(world + PART, PART, "after the guard region");
    }
    verify_around(gen, "around");
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_fault};
    OK(sigaction(SIGSEGV, &action, NULL));
    world = od_map(SIZE);
    try_all(0, 10); /* nothing was frozen yet */
    for (int round = 0; round < 3; round++)
        try_all(1, 20 + 10 * round);
    OK(munmap(world, SIZE));
    world = od_map(SIZE);
    try_all(1, 90);
    return od_done();
}
