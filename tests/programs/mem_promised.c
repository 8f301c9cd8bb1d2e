// odtest: mem=200
/*
 * Memory gets a property while no helper task may be made (RLIMIT_NPROC, for an ordinary user): it
 * stays frozen. When it is thawed later it has the property still. And where such memory is freed,
 * what lies there next has none of it.
 */
#include "odtest.h"
#include <sys/resource.h>

enum { AT = 8 << 20, PART = 1 << 20 };
static const size_t BYTES = 32 * OD_MB;

static void allow_helpers(int allowed)
{
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NPROC, &limit));
    limit.rlim_cur = allowed ? limit.rlim_max : 0;
    OK(setrlimit(RLIMIT_NPROC, &limit));
}

static void finds_nothing(void *secret)
{
    if (od_is_readable(secret))
        od_verify_zero(secret, PART, "a child finds what was not for it");
}

static char *frozen(void)
{
    char *memory = od_map(BYTES);
    od_fill(memory, BYTES, 1);
    od_freeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
    return memory;
}

/* Then all of it is thawed, and moves. */
static void keep(int advice)
{
    char *memory = frozen();
    allow_helpers(0);
    int answer = madvise(memory + AT, PART, advice);
    allow_helpers(1);
    if (answer < 0) {
        printf("advice %d: %s\n", advice, strerror(errno));
        return;
    }
    OK(madvise(memory, BYTES, MADV_DONTDUMP));
    od_run_child(finds_nothing, memory + AT);
    od_verify(memory, BYTES, 1, "its own");
    char *target = od_map(BYTES);
    const int how = MREMAP_MAYMOVE | MREMAP_FIXED;
    if (mremap(memory + AT, PART, PART, how, target + AT) != MAP_FAILED)
        od_run_child(finds_nothing, target + AT);
}

/* The C library unmaps the block, and maps the next one there. */
static void give_to_others(void)
{
    char *block = malloc(BYTES);
    od_fill(block, BYTES, 2);
    od_freeze();
    char *page = (char *)(((uintptr_t)block + OD_PAGE - 1) & ~(uintptr_t)(OD_PAGE - 1));
    allow_helpers(0);
    int answer = madvise(page + AT, PART, MADV_WIPEONFORK);
    allow_helpers(1);
    free(block);
    char *next = malloc(BYTES);
    printf("advice %d, the same place: %d\n", answer, next == block);
    od_fill(next, BYTES, 3);
    pid_t child = od_fork();
    if (child == 0) {
        od_verify(next, BYTES, 3, "a block that was never advised, in a child");
        _exit(0);
    }
    od_join(child);
    free(next);
}

int main(void)
{
    keep(MADV_DONTFORK);
    keep(MADV_WIPEONFORK);
    for (int i = 0; i < 2; i++)
        give_to_others();
    return od_done();
}
