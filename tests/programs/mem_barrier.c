/* A write barrier by SIGSEGV, as garbage collectors use: the pages it reports are exactly the pages
 * written, in the parent, in the child, and after folds. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define PAGES (SIZE / OD_PAGE)

static char *world;
static unsigned char reported[PAGES], written[PAGES];
static volatile int barrier_up;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    char *at = info->si_addr;
    if (!barrier_up || at < world || at >= world + SIZE || info->si_code != SEGV_ACCERR)
        FAIL("stray fault at %p, code %d", (void *)at, info->si_code);
    size_t page = (at - world) / OD_PAGE;
    if (reported[page])
        FAIL("page %zu reported twice", page);
    reported[page] = 1;
    if (mprotect(world + page * OD_PAGE, OD_PAGE, PROT_READ | PROT_WRITE))
        FAIL("mprotect in the handler: %s", strerror(errno));
}

static void raise_barrier(void)
{
    memset(reported, 0, PAGES);
    memset(written, 0, PAGES);
    OK(mprotect(world, SIZE, PROT_READ));
    barrier_up = 1;
}

static void write_some(uint32_t *dice, int count, uint64_t gen)
{
    for (int i = 0; i < count; i++) {
        size_t page = od_random(dice) % PAGES;
        written[page] = 1;
        ((uint64_t *)(world + page * OD_PAGE))[gen % 512] = gen;
    }
}

static void compare(const char *who)
{
    for (size_t page = 0; page < PAGES; page++)
        CHECK(written[page] == reported[page], "%s: page %zu written %d reported %d", who, page,
              written[page], reported[page]);
}

static void child(void *argument)
{
    uint32_t dice = *(uint32_t *)argument;
    write_some(&dice, 400, 17); /* the parent's barrier is the child's */
    compare("child");
    od_refreeze();
    write_some(&dice, 400, 18);
    compare("child after a fold");
    raise_barrier();
    write_some(&dice, 400, 19);
    compare("child, barrier raised again");
}

static void freeze_writable(void)
{
    barrier_up = 0;
    OK(mprotect(world, SIZE, PROT_READ | PROT_WRITE));
    od_run_child((void (*)(void *))od_refreeze, NULL);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    uint32_t dice = 5;
    OK(sigaction(SIGSEGV, &action, NULL));
    world = od_map(SIZE);
    od_fill(world, SIZE, 1);
    for (int round = 0; round < 8; round++) {
        if (round == 2) /* frozen while writable, once; before that it never was */
            freeze_writable();
        raise_barrier();
        write_some(&dice, 300, 100 + round);
        od_run_child(child, &dice);
        compare("parent");
        write_some(&dice, 300, 200 + round);
        if (round % 2)
            od_refreeze();
        write_some(&dice, 300, 300 + round);
        compare("parent after the fork");
    }
    return od_done();
}
