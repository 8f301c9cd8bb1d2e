/* MADV_DONTNEED reads zeros afterwards: at every edge, across mappings, by wrapper and by
 * syscall(), in parent and child, and a later fold does not bring the old bytes back. */
// odtest: timeout=60
#define SIZE (16 * OD_MB)
#include "mem_pages.h"

static void write_all(uint32_t gen)
{
    for (size_t page = 0; page < PAGES; page++)
        gen_of[page] = gen;
    od_fill(world, SIZE, gen);
}

static void drop(size_t page, size_t pages, int by_syscall)
{
    char *start = world + page * OD_PAGE;
    if (by_syscall)
        OK(syscall(SYS_madvise, start, pages * OD_PAGE, MADV_DONTNEED));
    else
        OK(madvise(start, pages * OD_PAGE, MADV_DONTNEED));
    for (size_t i = page; i < page + pages; i++)
        gen_of[i] = 0;
}

/* Around huge-page borders, single pages, the first, the last. */
static void drop_edges(int by_syscall)
{
    static const size_t at[][2] = {{0, 1},    {511, 2},       {1024, 512},
                                   {1535, 1}, {1537, 513},    {2600, 1},
                                   {2602, 1}, {PAGES - 1, 1}, {PAGES - 700, 3}};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        drop(at[i][0], at[i][1], by_syscall);
        verify("after DONTNEED");
    }
    /* a length that is not whole pages is rounded up */
    OK(madvise(world + 3000 * OD_PAGE, OD_PAGE + 1, MADV_DONTNEED));
    gen_of[3000] = gen_of[3001] = 0;
    verify("after a rounded DONTNEED");
    CHECK(madvise(world + 1, OD_PAGE, MADV_DONTNEED) == -1 && errno == EINVAL,
          "an unaligned start must be EINVAL");
    CHECK(madvise(world, 0, MADV_DONTNEED) == 0, "no length is no error");
    /* written again, the page is the program's own again */
    gen_of[511] = 77;
    od_fill_at(world + 511 * OD_PAGE, OD_PAGE, 77, 511 * 512);
    verify("after writing to a dropped page");
}

/* DONTNEED over a frozen part, a hole, and a fresh mapping: ENOMEM, yet both sides are dropped. */
static void drop_across_a_hole(void)
{
    char *wide = od_map(3 * 8 * OD_MB);
    od_fill(wide, 3 * 8 * OD_MB, 5);
    od_run_child((void (*)(void *))od_refreeze, NULL);
    OK(munmap(wide + 8 * OD_MB, 8 * OD_MB));
    int result = madvise(wide + 4 * OD_MB, 16 * OD_MB, MADV_DONTNEED);
    CHECK(result == -1 && errno == ENOMEM, "across a hole: %d, %s", result, strerror(errno));
    od_verify(wide, 4 * OD_MB, 5, "before the range");
    od_verify_zero(wide + 4 * OD_MB, 4 * OD_MB, "before the hole");
    od_verify_zero(wide + 16 * OD_MB, 4 * OD_MB, "after the hole");
    od_verify_at(wide + 20 * OD_MB, 4 * OD_MB, 5, 20 * OD_MB / 8, "after the range");
    OK(munmap(wide, 3 * 8 * OD_MB));
}

static void child(void *argument)
{
    verify("child");
    drop_edges(*(int *)argument);
    drop(100, 2000, 0);
    verify("child after its own DONTNEED");
    od_refreeze();
    od_run_child((void (*)(void *))verify, "grandchild");
}

int main(void)
{
    world = od_map(SIZE);
    for (int round = 0; round < 4; round++) {
        int by_syscall = round & 1;
        write_all(round + 1);
        od_run_child(child, &by_syscall); /* eager: frozen here */
        verify("parent after the child dropped");
        drop_edges(!by_syscall);
        od_refreeze();
        verify("after the fold");
        od_run_child((void (*)(void *))verify, "child of dropped pages");
        drop(0, PAGES, by_syscall);
        verify("everything dropped");
        od_run_child((void (*)(void *))verify, "child of nothing");
        drop_across_a_hole();
    }
    /* the statistics show which backing files there are at the end */
    write_all(5);
    od_run_child((void (*)(void *))verify, "child at the end");
    return od_done();
}
