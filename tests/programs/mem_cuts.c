/* Single pages of frozen memory get a property and lose it again, thousands of them: the mappings
 * of the process stay far from the kernel's limit, as on stock, where the kernel joins them again.
 * Each page keeps its content. */
// odtest: expect=froze user=any auto=any timeout=120 mem=400
#include "odtest.h"

#define PAGES 3200
#define SIZE (2 * PAGES * OD_PAGE)
#define MOST 4800 /* mappings: each page would be two more */

static char *world;

static void check(void *gen) { od_verify(world, SIZE, *(uint64_t *)gen, "child"); }

static void lock(char *page)
{
    OK(mlock(page, OD_PAGE));
    OK(munlock(page, OD_PAGE));
}

static void keep_out(char *page)
{
    OK(madvise(page, OD_PAGE, MADV_DONTFORK));
    OK(madvise(page, OD_PAGE, MADV_DOFORK));
}

static void each(uint64_t gen, size_t pages, void (*act)(char *))
{
    od_fill(world, SIZE, gen);
    od_run_child(check, &gen); /* eager: frozen here */
    for (size_t i = 0; i < pages; i++)
        act(world + 2 * i * OD_PAGE);
    int now = od_mappings();
    CHECK(now < MOST, "%d mappings after %zu pages", now, pages);
    od_run_child(check, &gen);
    od_fill(world, SIZE, gen + 1);
    gen++;
    od_run_child(check, &gen);
    check(&gen);
}

static void in_a_child(void (*act)(char *))
{
    fflush(NULL);
    pid_t pid = OK(fork());
    if (pid == 0) {
        each(3, PAGES, act);
        each(5, 100, act);
        _exit(0);
    }
    od_join(pid);
}

int main(void)
{
    world = od_map(SIZE);
    in_a_child(lock);
    in_a_child(keep_out);
    each(1, 400, lock);
    each(3, PAGES, lock);
    return od_done();
}
