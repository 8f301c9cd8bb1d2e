// odtest: mem=200
/*
 * Memory gets a property while no helper task may be made (RLIMIT_NPROC, for an ordinary user): it
 * stays frozen. When it is thawed later it has the property still, also where the range had a hole
 * or only a part was thawed. What lies beside it has none of it, nor has what lies there next.
 */
#include "odtest.h"
#include <sys/resource.h>

enum { AT = 8 << 20, PART = 1 << 20, WIDE = 8 << 20 };
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

/* Behind the hole the kernel goes on. */
static void keep_beside_a_hole(int advice)
{
    char *memory = frozen(), *hole = memory + AT + PART;
    OK(munmap(hole, OD_PAGE));
    allow_helpers(0);
    if (advice == MADV_DOFORK)
        OK(madvise(memory + AT, PART, MADV_DONTFORK));
    int answer = madvise(memory + AT, 2 * PART, advice);
    int error = errno;
    allow_helpers(1);
    CHECK(answer == -1 && error == ENOMEM, "advice %d over a hole: %s", advice, strerror(error));
    OK(madvise(memory, AT + PART, MADV_DONTDUMP));
    OK(madvise(hole + OD_PAGE, BYTES - AT - PART - OD_PAGE, MADV_DONTDUMP));
    pid_t child = od_fork();
    if (child == 0) {
        CHECK(advice != MADV_DOFORK || od_is_readable(memory + AT), "a child lacks memory");
        if (advice == MADV_DOFORK)
            od_verify_at(memory + AT, PART, 1, AT / 8, "what is for children again");
        else
            finds_nothing(memory + AT);
        _exit(0);
    }
    od_join(child);
}

/* Once helpers are to be had all of it gets another property, with memory that was never frozen. */
static void give_to_none_beside(void)
{
    char *memory = od_map(BYTES + WIDE), *beside = memory + BYTES;
    OK(mprotect(beside, WIDE, PROT_NONE));
    od_fill(memory, BYTES, 1);
    od_freeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
    OK(mprotect(beside, WIDE, PROT_READ | PROT_WRITE));
    od_fill(beside, WIDE, 4);
    allow_helpers(0);
    OK(madvise(memory + AT, BYTES - AT, MADV_DONTFORK));
    allow_helpers(1);
    OK(madvise(memory + AT, BYTES - AT + WIDE, MADV_DONTDUMP));
    pid_t child = od_fork();
    if (child == 0) {
        CHECK(!od_is_readable(memory + AT), "a child has what was not for it");
        CHECK(od_is_readable(beside), "a child lacks what lies beside");
        od_verify(beside, WIDE, 4, "what lies beside");
        _exit(0);
    }
    od_join(child);
}

static void finds_zeros(void *wiped)
{
    for (char *at = wiped; at < (char *)wiped + WIDE; at += PART)
        CHECK(od_is_readable(at), "a child lacks memory that was to be empty");
    od_verify_zero(wiped, WIDE, "memory that was to be empty");
}

static void finds_zeros_and_forks(void *wiped)
{
    finds_zeros(wiped);
    od_run_child(finds_zeros, wiped);
}

/* A part is thawed before children are made. */
static void wipe_in_parts(int by_lock)
{
    char *memory = frozen(), *wiped = memory + AT, *part = wiped + 3 * PART;
    allow_helpers(0);
    OK(madvise(wiped, WIDE, MADV_WIPEONFORK));
    allow_helpers(1);
    OK(by_lock ? mlock(part, OD_PAGE) : madvise(part, 2 * PART, MADV_DONTDUMP));
    for (int i = 0; i < 2; i++)
        od_run_child(finds_zeros_and_forks, wiped);
    od_verify(memory, BYTES, 1, "its own");
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
    keep_beside_a_hole(MADV_DONTFORK);
    keep_beside_a_hole(MADV_WIPEONFORK);
    keep_beside_a_hole(MADV_DOFORK);
    give_to_none_beside();
    for (int i = 0; i < 2; i++)
        wipe_in_parts(i);
    for (int i = 0; i < 2; i++)
        give_to_others();
    return od_done();
}
