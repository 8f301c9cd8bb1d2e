// odtest: expect=frozen mem=64
/*
 * Fork at the edges of a program's life: in a constructor before main (with big memory made there),
 * in the dynamic linker's order before and after other constructors, in an atexit handler, in a
 * destructor, and in a child that leaves through exit() so that handlers run there too. Each
 * handler runs once in each process, in order.
 */
#include "proc_region.h"

static const size_t BYTES = 16 * OD_MB;
static void *region;
static pid_t first;
static int *calls; /* MAP_SHARED: times each hook ran, over all processes */

enum { BEFORE, AFTER, AT_EXIT, DESTROYED };

__attribute__((constructor(101))) static void before_all(void)
{
    first = getpid();
    calls = OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    region = region_new(BYTES, 20);
    region_look(region, BYTES, 20, "in the first constructor");
    region_grow_old(region, BYTES, 20);
    calls[BEFORE]++;
}

__attribute__((constructor)) static void before_main(void)
{
    errno = 77;
    pid_t pid = fork();
    CHECK(pid >= 0 && errno == 77, "fork in a constructor");
    if (pid == 0) {
        region_check(region, BYTES, 20, REGION_STEP, "in a constructor");
        char *block = malloc(2 * OD_MB);
        CHECK(block, "malloc");
        memset(block, 7, 2 * OD_MB);
        region_look(region, BYTES, 20, "in the child of a constructor");
        free(block);
        _exit(0);
    }
    od_join(pid);
    calls[AFTER]++;
}

__attribute__((destructor)) static void after_main(void)
{
    if (getpid() == first) {
        region_look(region, BYTES, 20, "in a destructor");
        region_check(region, BYTES, 20, 1, "in a destructor");
        CHECK(calls[BEFORE] == 1 && calls[AFTER] == 1, "constructors ran %d and %d times",
              calls[BEFORE], calls[AFTER]);
        CHECK(calls[AT_EXIT] == 2 && calls[DESTROYED] == 1, "at exit %d, destroyed %d",
              calls[AT_EXIT], calls[DESTROYED]);
    }
    calls[DESTROYED]++;
}

static void at_exit(void)
{
    calls[AT_EXIT]++;
    region_touch(region, BYTES, 20, (size_t)getpid());
    region_look(region, BYTES, 20, "in an atexit handler");
    region_grow_old(region, BYTES, 20);
}

int main(void)
{
    CHECK(atexit(at_exit) == 0, "atexit");
    region_look(region, BYTES, 20, "in main");
    pid_t pid = od_fork();
    if (pid == 0)
        exit(0); /* handlers and destructors run in the child as well */
    od_join(pid);
    return od_done();
}
