/* Transparent huge pages in the program itself: advised before and after, partly dropped,
 * collapsed. */
// odtest: needs=thp timeout=60 mem=500
#include "odtest.h"

#define HUGE_PAGE (2 * OD_MB)
#define SIZE (32 * OD_MB)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static char *world;

static void verify(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    for (size_t at = 0; at < SIZE; at += HUGE_PAGE) {
        size_t kept = at / HUGE_PAGE % 4 == 2 ? HUGE_PAGE / 2 : HUGE_PAGE;
        od_verify_at(world + at, kept, gen, at / 8, "kept");
        od_verify_zero(world + at + kept, HUGE_PAGE - kept, "dropped");
    }
}

static void child(void *argument)
{
    verify(argument);
    od_fill(world, SIZE, 1234);
    od_refreeze();
    od_verify(world, SIZE, 1234, "child after its own writes");
}

/* Every 4th huge page loses its second half. */
static void drop_halves(void)
{
    for (size_t at = 2 * HUGE_PAGE; at < SIZE; at += 4 * HUGE_PAGE)
        OK(madvise(world + at + HUGE_PAGE / 2, HUGE_PAGE / 2, MADV_DONTNEED));
}

int main(void)
{
    char *at = od_map(SIZE + HUGE_PAGE);
    world = at + (-(uintptr_t)at & (HUGE_PAGE - 1));
    for (uint64_t gen = 1; gen < 8; gen++) {
        OK(madvise(world, SIZE, gen % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
        od_fill(world, SIZE, gen);
        drop_halves();
        od_run_child(child, &gen);
        verify(&gen);
        if (gen % 3 == 0)
            madvise(world, SIZE, MADV_COLLAPSE); /* may or may not find memory for it */
        verify(&gen);
        od_refreeze();
        od_run_child(child, &gen);
        verify(&gen);
        if (gen == 4) { /* a fresh start */
            OK(munmap(at, SIZE + HUGE_PAGE));
            at = od_map(SIZE + HUGE_PAGE);
            world = at + (-(uintptr_t)at & (HUGE_PAGE - 1));
        }
    }
    return od_done();
}
