/* A process with 20,000 mappings, frozen memory among them, that go on changing. */
// odtest: timeout=90
#include "odtest.h"

#define PIECES 20000
#define SIZE (16 * OD_MB)

static char *pieces, *world;

static void verify(uint64_t gen, const char *who)
{
    od_verify(world, SIZE, gen, who);
    for (size_t i = 0; i < PIECES; i += 2)
        CHECK(*(uint64_t *)(pieces + i * OD_PAGE) == gen * 100000 + i, "%s: piece %zu", who, i);
}

static void write_all(uint64_t gen)
{
    od_fill(world, SIZE, gen);
    for (size_t i = 0; i < PIECES; i += 2)
        *(uint64_t *)(pieces + i * OD_PAGE) = gen * 100000 + i;
}

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    verify(gen, "child");
    write_all(gen + 50);
    verify(gen + 50, "child after its own writes");
}

int main(void)
{
    world = od_map(SIZE);
    pieces = od_map(PIECES * OD_PAGE);
    for (size_t i = 1; i < PIECES; i += 2)
        OK(mprotect(pieces + i * OD_PAGE, OD_PAGE, PROT_NONE));
    for (uint64_t gen = 1; gen < 6; gen++) {
        write_all(gen);
        od_run_child(child, &gen);
        verify(gen, "parent");
        if (gen == 3)
            od_refreeze();
        /* the frozen region itself in many pieces, and whole again */
        for (size_t page = 1; page < SIZE / OD_PAGE; page += 2)
            OK(mprotect(world + page * OD_PAGE, OD_PAGE, PROT_READ));
        od_run_child((void (*)(void *))od_refreeze, NULL);
        verify(gen, "parent, in pieces");
        OK(mprotect(world, SIZE, PROT_READ | PROT_WRITE));
    }
    OK(munmap(pieces, PIECES * OD_PAGE));
    return od_done();
}
