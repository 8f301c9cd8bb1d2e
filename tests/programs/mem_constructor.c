/* Forks before main, in a constructor, and after it, in exit handlers: memory is as at any other
 * time. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (16 * OD_MB)

static char *world;
static uint64_t in_bss[8 * OD_MB / 8];

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    od_verify(world, SIZE, gen, "child");
    od_verify(in_bss, sizeof in_bss, gen, "child, .bss");
    od_fill(world, SIZE, gen + 50);
    od_fill(in_bss, sizeof in_bss, gen + 50);
}

static void fork_once(uint64_t gen)
{
    od_fill(world, SIZE, gen);
    od_fill(in_bss, sizeof in_bss, gen);
    od_run_child(child, &gen);
    od_verify(world, SIZE, gen, "parent");
    od_verify(in_bss, sizeof in_bss, gen, "parent, .bss");
}

static __attribute__((constructor)) void before_main(void)
{
    world = od_map(SIZE);
    fork_once(1);
    fork_once(2);
}

static void at_exit(void) { fork_once(30); }

static __attribute__((destructor)) void after_main(void) { fork_once(40); }

int main(void)
{
    OK(atexit(at_exit));
    od_verify(world, SIZE, 2, "from before main");
    for (uint64_t gen = 3; gen < 8; gen++)
        fork_once(gen);
    od_refreeze();
    fork_once(9);
    return od_done();
}
