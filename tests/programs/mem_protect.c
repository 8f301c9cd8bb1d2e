/* mprotect in tiny and huge groups, guards, and what a fault handler is told, on both sides of a
 * fork. */
// odtest: timeout=60
#include "odtest.h"
#include <setjmp.h>

#define SIZE (16 * OD_MB)
#define PAGES (SIZE / OD_PAGE)

static char *world;
static unsigned char protection[PAGES];
static sigjmp_buf back;
static volatile int got_code;
static char *volatile got_address;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    got_code = info->si_code;
    got_address = info->si_addr;
    siglongjmp(back, sig);
}

static int read_faults(char *at)
{
    int caught = sigsetjmp(back, 1);
    if (caught == 0)
        *(volatile char *)at;
    return caught;
}

static int write_faults(char *at)
{
    int caught = sigsetjmp(back, 1);
    if (caught == 0)
        *(volatile char *)at = *(volatile char *)at;
    return caught;
}

static void set(size_t page, size_t pages, int to)
{
    OK(mprotect(world + page * OD_PAGE, pages * OD_PAGE, to));
    memset(protection + page, to, pages);
}

/* Every 3rd page is tried: it must be exactly as accessible as set. */
static void verify_access(const char *who)
{
    for (size_t page = 0; page < PAGES; page += 3) {
        char *at = world + page * OD_PAGE + page % OD_PAGE;
        int caught_read = read_faults(at);
        int want_read = protection[page] & PROT_READ ? 0 : SIGSEGV;
        CHECK(caught_read == want_read, "%s: reading page %zu: signal %d, want %d", who, page,
              caught_read, want_read);
        if (caught_read) {
            CHECK(got_address == at, "%s: si_addr %p, want %p", who, got_address, at);
            CHECK(got_code == SEGV_ACCERR, "%s: si_code %d for a guard", who, got_code);
            continue;
        }
        int caught_write = write_faults(at);
        CHECK(caught_write == (protection[page] & PROT_WRITE ? 0 : SIGSEGV),
              "%s: writing page %zu: signal %d", who, page, caught_write);
        if (caught_write)
            CHECK(got_address == at && got_code == SEGV_ACCERR, "%s: si_addr %p si_code %d", who,
                  got_address, got_code);
    }
}

static void verify(uint64_t gen, const char *who)
{
    verify_access(who);
    for (size_t page = 0; page < PAGES; page++)
        if (protection[page] & PROT_READ)
            od_verify_at(world + page * OD_PAGE, OD_PAGE, gen, page * 512, who);
}

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    verify(gen, "child");
    set(0, PAGES, PROT_READ | PROT_WRITE);
    verify(gen, "child, all opened");
    set(PAGES / 2, 7, PROT_NONE);
    od_fill(world, SIZE / 4, 9);
    od_refreeze();
    verify_access("child after the fold");
}

static void tiny_groups(int step)
{
    for (size_t page = 0; page + 2 < PAGES; page += step)
        set(page, 1 + page % 2, page % 4 < 2 ? PROT_READ : PROT_NONE);
}

static void hole(void)
{
    OK(munmap(world + 5 * OD_MB, OD_PAGE));
    char *at = world + 5 * OD_MB + 9;
    CHECK(read_faults(at) == SIGSEGV && got_code == SEGV_MAPERR && got_address == at,
          "a hole: si_code %d si_addr %p", got_code, got_address);
    void *again = mmap(world + 5 * OD_MB, OD_PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(again == world + 5 * OD_MB, "the hole cannot be mapped again: %s", strerror(errno));
    od_verify_zero(again, OD_PAGE, "mapped again");
    od_fill_at(again, OD_PAGE, 1, 5 * OD_MB / 8);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    uint64_t gen = 1;
    OK(sigaction(SIGSEGV, &action, NULL));
    world = od_map(SIZE);
    od_fill(world, SIZE, gen);
    memset(protection, PROT_READ | PROT_WRITE, PAGES);
    for (int round = 0; round < 3; round++) {
        if (round) /* frozen in one piece; before that it never was */
            od_run_child((void (*)(void *))od_refreeze, NULL);
        tiny_groups(round ? 61 : 97);
        verify(gen, "before the fork");
        od_run_child(child, &gen);
        verify(gen, "parent");
        set(0, PAGES, PROT_READ | PROT_WRITE);
        verify(gen, "all opened");
        set(0, PAGES, PROT_NONE);
        od_run_child(child, &gen);
        verify(gen, "all closed");
        set(PAGES / 3, PAGES / 3, PROT_READ);
        od_refreeze();
        verify(gen, "parent, later");
        od_run_child(child, &gen);
        set(0, PAGES, PROT_READ | PROT_WRITE);
        hole();
        verify(gen, "after the hole");
    }
    CHECK(mprotect(world, OD_PAGE, 0x1000) == -1 && errno == EINVAL, "a wrong protection");
    return od_done();
}
