/* At the limit of mappings: fork works as on stock, before and after something was frozen, and no
 * byte is lost when a fold or a freeze finds no mapping left. */
// odtest: expect=froze timeout=90
#include "odtest.h"

#define SIZE (24 * OD_MB)

static char *world, *pieces;
static size_t room; /* pages of `pieces` */

static void verify(void *argument)
{
    od_verify(world, SIZE, *(uint64_t *)argument, "world");
    for (size_t i = 0; i < room; i += 1024)
        CHECK(*(uint64_t *)(pieces + i * OD_PAGE) == i, "piece %zu", i);
}

static void child(void *argument)
{
    verify(argument);
    od_fill(world, SIZE, 333);
    od_refreeze();
    od_verify(world, SIZE, 333, "child after its own writes");
}

/* Splits `pieces` until the kernel says no; returns the number of pieces. */
static size_t exhaust(void)
{
    size_t made = 0;
    for (size_t i = 1; i < room; i += 2, made += 2)
        if (mprotect(pieces + i * OD_PAGE, OD_PAGE, PROT_READ) != 0) {
            CHECK(errno == ENOMEM, "mprotect at the limit: %s", strerror(errno));
            return made;
        }
    FAIL("the limit of mappings was not reached");
}

static void relax(void) { OK(mprotect(pieces, room * OD_PAGE, PROT_READ | PROT_WRITE)); }

int main(void)
{
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    long limit = 65530;
    if (file && fscanf(file, "%ld", &limit) != 1)
        limit = 65530;
    if (file)
        fclose(file);
    if (limit > 300000)
        od_skip("vm.max_map_count is %ld: reaching it takes too long", limit);
    room = limit + 1000;
    pieces = od_map(room * OD_PAGE);
    for (size_t i = 0; i < room; i += 1024)
        *(uint64_t *)(pieces + i * OD_PAGE) = i;
    world = od_map(SIZE);
    od_small_pages(world, SIZE); /* round 3 is to be noticed by its page faults */
    for (uint64_t gen = 1; gen < 5; gen++) {
        od_fill(world, SIZE, gen);
        if (gen != 3) /* in round 3 memory is frozen first and the limit reached after */
            CHECK(exhaust() > (size_t)limit / 2, "too few pieces");
        od_run_child(child, &gen);
        verify(&gen);
        if (gen == 3)
            CHECK(exhaust() > (size_t)limit / 2, "too few pieces");
        /* dirty, with nothing left to split */
        for (size_t page = 0; page < SIZE / OD_PAGE; page += 3)
            od_fill_at(world + page * OD_PAGE, OD_PAGE, gen, page * 512);
        od_run_child(child, &gen);
        od_refreeze();
        OK(madvise(world, 3 * OD_PAGE, MADV_DONTNEED));
        od_verify_zero(world, 3 * OD_PAGE, "DONTNEED at the limit");
        od_fill(world, 3 * OD_PAGE, gen);
        verify(&gen);
        relax();
        od_run_child(child, &gen);
    }
    return od_done();
}
