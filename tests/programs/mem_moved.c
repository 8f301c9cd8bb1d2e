// odtest: mem=100
/*
 * Memory with a property of its own comes to lie beside frozen memory: moved there by mremap, or
 * mapped there with the property. Then a call concerns both. The property stays: what is not for
 * children is not there in a child, or empty; what was locked or grows down is and does still.
 */
#include "odtest.h"

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

int main(void)
{
    for (enum call call = 0; call < CALLS; call++) {
        move_beside(MADV_WIPEONFORK, call);
        move_beside(MADV_DONTFORK, call);
    }
    map_beside(MAP_LOCKED, " lo");
    map_beside(MAP_GROWSDOWN, " gd");
    return od_done();
}
