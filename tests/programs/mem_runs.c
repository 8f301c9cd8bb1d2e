/* Mappings whose populated pages lie in 512, 1024, 1365 and 4096 separate runs: about the sizes of
 * the kernel's and our own buffers for runs of pages. Every page keeps its value in parent and
 * child, the gaps stay zero. */
// odtest: modes=stock,huge,small huge=any mem=500
#include "odtest.h"

#define LENGTH (64 * OD_MB)

/* One page in so many is a gap; in the last mapping, all but one in four are: too thin to be
 * frozen. */
static const size_t steps[] = {32, 16, 12, 4};
#define STEPS (sizeof steps / sizeof steps[0])

static char *blocks[STEPS];

/* Not aligned to 2 MB, and apart from its neighbours. */
static char *unaligned(size_t shift)
{
    size_t room = LENGTH + 6 * OD_MB;
    char *all = OK(mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char *at = (char *)(((uintptr_t)all + 4 * OD_MB) & ~(2 * OD_MB - 1)) + shift;
    OK(madvise(all, room, MADV_NOHUGEPAGE));
    OK(munmap(all, at - all));
    OK(munmap(at + LENGTH, all + room - at - LENGTH));
    return at;
}

static int is_gap(size_t block, size_t page)
{
    return (page % steps[block] == 0) == (steps[block] >= 12);
}

static uint64_t value(size_t page, uint64_t gen) { return page * 0x9e3779b97f4a7c15u + gen; }

static void write_runs(uint64_t gen)
{
    for (size_t b = 0; b < STEPS; b++)
        for (size_t page = 0; page < LENGTH / OD_PAGE; page++)
            if (!is_gap(b, page))
                *(uint64_t *)(blocks[b] + page * OD_PAGE) = value(page, gen);
}

static void verify_runs(uint64_t gen)
{
    for (size_t b = 0; b < STEPS; b++)
        for (size_t page = 0; page < LENGTH / OD_PAGE; page++) {
            uint64_t found = *(uint64_t *)(blocks[b] + page * OD_PAGE);
            uint64_t wanted = is_gap(b, page) ? 0 : value(page, gen);
            CHECK(found == wanted, "steps of %zu, page %zu: %llx, not %llx", steps[b], page,
                  (unsigned long long)found, (unsigned long long)wanted);
        }
}

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    verify_runs(gen);
    write_runs(gen + 1);
    verify_runs(gen + 1);
}

int main(void)
{
    for (size_t b = 0; b < STEPS; b++)
        blocks[b] = unaligned(b * 18 * OD_PAGE);
    for (uint64_t gen = 10; gen < 50; gen += 10) {
        write_runs(gen);
        od_run_child(child, &gen);
        verify_runs(gen);
        od_refreeze();
        verify_runs(gen);
    }
    return od_done();
}
