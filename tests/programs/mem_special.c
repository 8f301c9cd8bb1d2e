/* Special mappings beside frozen memory: secret memory, droppable memory, private /dev/zero, a
 * private memfd, a growing-down region, read-only and execute-only pages, and the vdso. */
// odtest: timeout=60
#include "odtest.h"
#include <sys/auxv.h>
#include <time.h>

#define SIZE (8 * OD_MB)
#define KINDS 5

static char *world, *stack_top, *special[KINDS];
static const char *const name[KINDS] = {"secret", "private /dev/zero", "private memfd",
                                        "no reserve", "populated"};

static char *map_of(int fd, int flags)
{
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (fd >= 0)
        close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static void map_all(void)
{
    int secret = syscall(SYS_memfd_secret, O_CLOEXEC);
    if (secret >= 0 && ftruncate(secret, SIZE) == 0)
        special[0] = map_of(secret, MAP_SHARED);
    special[1] = map_of(OK(open("/dev/zero", O_RDWR)), MAP_PRIVATE);
    int memory = OK(memfd_create("mem_special", MFD_CLOEXEC));
    OK(ftruncate(memory, SIZE));
    special[2] = map_of(memory, MAP_PRIVATE);
    special[3] = map_of(-1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    special[4] = map_of(-1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE);
    printf("secret memory: %s\n", special[0] ? "yes" : "no");
}

static void fill(uint64_t gen)
{
    od_fill(world, SIZE, gen);
    for (int i = 0; i < KINDS; i++)
        if (special[i])
            od_fill(special[i], SIZE / (i ? 1 : 32), gen + i);
}

static void verify(uint64_t gen, const char *who)
{
    od_verify(world, SIZE, gen, who);
    for (int i = 0; i < KINDS; i++)
        if (special[i])
            od_verify(special[i], SIZE / (i ? 1 : 32), gen + i, name[i]);
}

static void check_clock(void)
{
    struct timespec now;
    OK(clock_gettime(CLOCK_MONOTONIC, &now)); /* through the vdso */
    CHECK(now.tv_sec > 0 && getauxval(AT_SYSINFO_EHDR) != 1, "the clock");
}

static void child(void *argument)
{
    verify(*(uint64_t *)argument, "child");
    check_clock();
    if (special[0]) { /* shared with the parent: not to be changed */
        char *kept = special[0];
        special[0] = NULL;
        fill(77);
        special[0] = kept;
    }
    od_refreeze();
}

/* Grows one page at a time below what is mapped, with forks between. */
static void grow_down(uint64_t gen)
{
    /* below RLIMIT_STACK, which bounds such a mapping */
    enum { HEAD = 6 << 20, ROOM = 4 << 20 };
    char *area = OK(mmap(NULL, ROOM + HEAD + (2 << 20), PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    OK(munmap(area, ROOM + HEAD));
    char *head = area + ROOM;
    char *at = mmap(head, HEAD, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(at == head, "MAP_GROWSDOWN: %s", strerror(errno));
    od_fill(at, HEAD, gen);
    stack_top = at;
    for (int page = 1; page <= 128; page++) {
        char *next = at - page * OD_PAGE;
        for (size_t i = 0; i < OD_PAGE; i++) /* untouched: zeros; touching it maps it */
            CHECK(next[i] == 0, "a page grown into is not zero");
        od_fill(next, OD_PAGE, gen + page);
        if (page % 32 == 1) {
            od_run_child((void (*)(void *))od_refreeze, NULL);
            od_verify(at, HEAD, gen, "the mapped part");
        }
    }
    for (int page = 1; page <= 128; page++)
        od_verify(at - page * OD_PAGE, OD_PAGE, gen + page, "the grown part");
    OK(munmap(at - 128 * OD_PAGE, HEAD + 128 * OD_PAGE));
    OK(munmap(area + ROOM + HEAD, 2 << 20));
}

int main(void)
{
    world = od_map(SIZE);
    map_all();
    for (uint64_t gen = 10; gen < 60; gen += 10) {
        fill(gen);
        od_run_child(child, &gen);
        verify(gen, "parent");
        grow_down(gen);
        if (gen == 30)
            od_refreeze();
        check_clock();
        verify(gen, "parent, later");
        if (gen == 40)
            for (int i = 1; i < KINDS; i++) {
                OK(madvise(special[i], SIZE, MADV_DONTNEED));
                od_verify_zero(special[i], SIZE, name[i]);
            }
    }
    return od_done();
}
