// odtest: mem=100
/*
 * Memory with a property of its own comes to lie beside frozen memory: moved there by mremap, or
 * mapped there with the property. Then a call concerns both. The property stays: what is not for
 * children is not there in a child, or empty; what was locked or grows down is and does still.
 */
#include "odtest.h"
#include <sys/resource.h>

enum { SMALL = 65536 };
static const size_t BYTES = 8 * OD_MB;

static char *map_at(void *at, size_t bytes, int flags)
{
    flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    return OK(mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0));
}

/* Addresses with nothing else beside them. */
static char *reserve(void)
{
    char *at = OK(mmap(NULL, 4 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return at + BYTES;
}

static void freeze_once(void)
{
    od_freeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
}

static void finds_nothing(void *secret)
{
    if (od_is_readable(secret))
        CHECK(*(char *)secret == 0, "a child finds what was not for it");
}

enum call { BY_LOCK, BY_MOVE, CALLS };

/* `advice` for a mapping that is moved behind frozen memory, or for one moved while frozen. */
static void move_beside(int advice, enum call call)
{
    char *world = map_at(reserve(), BYTES, 0), *far = map_at(reserve(), SMALL, 0);
    od_fill(world, BYTES, 1);
    OK(madvise(far, SMALL, advice));
    memset(far, 's', SMALL);
    freeze_once();
    char *secret = world + BYTES;
    OK(mremap(far, SMALL, SMALL, MREMAP_MAYMOVE | MREMAP_FIXED, secret));
    if (call == BY_LOCK) {
        if (mlock(secret - SMALL, 2 * SMALL) < 0)
            printf("mlock: %s\n", strerror(errno));
    } else {
        char *both = mremap(secret - SMALL, 2 * SMALL, 2 * SMALL, MREMAP_MAYMOVE);
        CHECK(both != MAP_FAILED || errno == EFAULT, "mremap: %s", strerror(errno));
        char *target = reserve();
        both = mremap(secret - SMALL, 2 * SMALL, 2 * SMALL, MREMAP_MAYMOVE | MREMAP_FIXED, target);
        if (both != MAP_FAILED)
            secret = both + SMALL;
    }
    od_run_child(finds_nothing, secret);
    CHECK(*secret == 's', "its own process lost it");
    od_verify(world, BYTES - SMALL, 1, "beside it");
    od_refreeze();
    od_run_child(finds_nothing, secret);
}

/* The flag of the mapping at that address, as smaps has it. */
static int has_flag(const char *at, const char *flag)
{
    char line[512];
    unsigned long start = 0, end = 0, from, to;
    int has = -1;
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (has < 0 && maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            start = from, end = to;
        else if (!strncmp(line, "VmFlags", 7) && start <= (uintptr_t)at && (uintptr_t)at < end)
            has = strstr(line, flag) != NULL;
    if (maps)
        fclose(maps);
    return has;
}

static void map_beside(int flags, const char *flag)
{
    char *world = map_at(reserve(), BYTES, 0);
    od_fill(world, BYTES, 2);
    char *other = map_at(world + BYTES, SMALL, flags);
    memset(other, 's', SMALL);
    freeze_once();
    int before = has_flag(other, flag);
    OK(madvise(other - SMALL, 2 * SMALL, MADV_DONTDUMP));
    int after = has_flag(other, flag);
    CHECK(before == after, "%s: %d before the call, %d after", flag, before, after);
    od_verify(world, BYTES, 2, "beside it");
}

/* Memory that is empty in children by its kind (Linux 6.11). */
static void map_droppable(void)
{
    enum { MAP_DROPPABLE_KIND = 8 };
    char *world = map_at(reserve(), BYTES, 0), *secret = world + BYTES;
    od_fill(world, BYTES, 3);
    const int flags = MAP_ANONYMOUS | MAP_FIXED | MAP_DROPPABLE_KIND;
    if (mmap(secret, SMALL, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        return;
    freeze_once();
    memset(secret, 's', SMALL);
    OK(madvise(secret - SMALL, 2 * SMALL, MADV_DONTDUMP));
    od_run_child(finds_nothing, secret);
    od_verify(world, BYTES, 3, "beside it");
}

/* A part is not for children; all of it moves, and leaves an empty mapping that still is not. */
static void leave_behind(void)
{
    char *world = map_at(reserve(), BYTES, 0), *target = reserve();
    od_fill(world, BYTES, 4);
    od_freeze();
    OK(madvise(world + OD_MB, SMALL, MADV_WIPEONFORK));
    const int how = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (mremap(world, BYTES, BYTES, how, target) == MAP_FAILED)
        return;
    od_verify(target, BYTES, 4, "what moved");
    od_fill(world, BYTES, 5);
    od_freeze();
    memset(world + OD_MB, 's', SMALL);
    OK(madvise(world, BYTES, MADV_DONTDUMP));
    od_run_child(finds_nothing, world + OD_MB);
}

/* A property that was refused, or taken back, is none: memory grows as if it had not been. */
static void take_back(int way)
{
    if (way == 0) {
        struct rlimit none = { 0, 0 }, before;
        OK(getrlimit(RLIMIT_MEMLOCK, &before));
        OK(setrlimit(RLIMIT_MEMLOCK, &none));
        if (mlockall(MCL_CURRENT) == 0)
            OK(munlockall());
        setrlimit(RLIMIT_MEMLOCK, &before);
    }
    char *memory = od_map(BYTES);
    od_fill(memory, BYTES, 6);
    od_freeze();
    if (way == 1) {
        OK(madvise(memory + OD_MB, OD_PAGE, MADV_DONTFORK));
        OK(madvise(memory + OD_MB, OD_PAGE, MADV_DOFORK));
    } else if (way == 2 && mlock(memory + OD_MB, OD_PAGE) == 0) {
        OK(munlock(memory + OD_MB, OD_PAGE));
    }
    char *grown = OK(mremap(memory, BYTES, 2 * BYTES, MREMAP_MAYMOVE));
    od_verify(grown, BYTES, 6, "grown");
    od_verify_zero(grown + BYTES, BYTES, "the new part");
    OK(munmap(grown, 2 * BYTES));
}

int main(void)
{
    for (enum call call = 0; call < CALLS; call++) {
        move_beside(MADV_WIPEONFORK, call);
        move_beside(MADV_DONTFORK, call);
    }
    map_beside(MAP_LOCKED, " lo");
    map_beside(MAP_GROWSDOWN, " gd");
    map_droppable();
    leave_behind();
    for (int way = 0; way < 3; way++)
        take_back(way);
    return od_done();
}
