/* Partial munmap, MAP_FIXED over frozen memory, new mappings in the holes, neighbours that merge.
 */
// odtest: expect=froze timeout=60
#include "odtest.h"

#define SIZE (32 * OD_MB)
#define PAGES (SIZE / OD_PAGE)
#define GONE UINT32_MAX

static char *world;
static uint32_t gen_of[PAGES]; /* 0: zeros; GONE: not mapped */

static void set(size_t page, size_t pages, uint32_t gen)
{
    for (size_t i = page; i < page + pages; i++)
        gen_of[i] = gen;
}

static void verify(const char *who)
{
    for (size_t page = 0; page < PAGES; page++) {
        char *at = world + page * OD_PAGE;
        unsigned char in_core;
        if (gen_of[page] == GONE)
            CHECK(page % 16 || (mincore(at, OD_PAGE, &in_core) == -1 && errno == ENOMEM),
                  "%s: page %zu is mapped", who, page);
        else if (gen_of[page] == 0)
            od_verify_zero(at, OD_PAGE, who);
        else
            od_verify_at(at, OD_PAGE, gen_of[page], page * 512, who);
    }
}

static void unmap(size_t page, size_t pages)
{
    OK(munmap(world + page * OD_PAGE, pages * OD_PAGE));
    set(page, pages, GONE);
}

static void map_over(size_t page, size_t pages)
{
    char *at = world + page * OD_PAGE;
    void *got = mmap(at, pages * OD_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(got == at, "MAP_FIXED: %s", strerror(errno));
    set(page, pages, 0);
}

static void fill(size_t page, size_t pages, uint32_t gen)
{
    for (size_t i = page; i < page + pages; i++)
        if (gen_of[i] != GONE)
            od_fill_at(world + i * OD_PAGE, OD_PAGE, gen, i * 512), gen_of[i] = gen;
}

static void churn(uint32_t *dice, int count, uint32_t gen)
{
    for (int i = 0; i < count; i++) {
        size_t pages = 1 + od_random(dice) % (i % 4 ? 20 : 700);
        size_t page = od_random(dice) % (PAGES - pages);
        switch (od_random(dice) % 4) {
        case 0:
            unmap(page, pages);
            break;
        case 1:
            map_over(page, pages);
            break;
        default:
            fill(page, pages, gen + i);
        }
    }
}

static void child(void *argument)
{
    uint32_t dice = *(uint32_t *)argument;
    verify("child");
    churn(&dice, 60, 5000);
    verify("child after its own churn");
    od_refreeze();
    verify("child after its fold");
    od_run_child((void (*)(void *))verify, "grandchild");
    verify("child after its fork");
}

int main(void)
{
    uint32_t dice = 1;
    world = od_map(SIZE);
    fill(0, PAGES, 1);
    for (int round = 0; round < 10; round++) {
        od_run_child(child, &dice);
        verify("parent");
        churn(&dice, 80, 1000 * (round + 10));
        if (round % 3 == 1)
            od_refreeze();
        verify("parent after its own churn");
        if (round % 4 == 3) { /* one piece again */
            map_over(0, PAGES);
            fill(0, PAGES, round + 2);
        }
    }
    unmap(0, PAGES);
    od_run_child((void (*)(void *))verify, "child of nothing");
    verify("nothing left");
    return od_done();
}
