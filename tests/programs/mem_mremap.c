/* mremap of frozen memory: new parts read zeros, old content stays, nobody gets SIGBUS. */
// odtest: timeout=60 mem=500
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define MORE (8 * OD_MB)
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static int by_syscall;

static void *remap(void *old, size_t from, size_t to, int flags, void *where)
{
    if (by_syscall)
        return (void *)syscall(SYS_mremap, old, from, to, flags, where);
    return mremap(old, from, to, flags, where);
}

/* Frozen memory of generation `gen`, dirty in places, with `room` free bytes behind it. */
static char *frozen(uint64_t gen, size_t room)
{
    char *at = od_map(SIZE + room);
    if (room)
        OK(munmap(at + SIZE, room));
    od_fill(at, SIZE, gen + 1);
    od_run_child((void (*)(void *))od_refreeze, NULL);
    od_fill(at, SIZE / 2, gen);
    od_refreeze();
    od_run_child((void (*)(void *))od_refreeze, NULL);
    od_fill(at, SIZE, gen);
    if (gen % 2)
        od_run_child((void (*)(void *))od_refreeze, NULL);
    return at;
}

static void check(const char *at, size_t old, size_t whole, uint64_t gen, const char *what)
{
    od_verify(at, old, gen, what);
    od_verify_zero(at + old, whole - old, what);
}

struct view {
    char *at;
    size_t old, whole;
    uint64_t gen;
    const char *what;
};

static void child(void *argument)
{
    struct view *v = argument;
    check(v->at, v->old, v->whole, v->gen, v->what);
    od_fill(v->at, v->whole, 4444);
    od_verify(v->at, v->whole, 4444, v->what);
}

/* In this process, in a child, and after writing the new part and another fork. */
static void check_everywhere(char *at, size_t old, size_t whole, uint64_t gen, const char *what)
{
    struct view v = {at, old, whole, gen, what};
    check(at, old, whole, gen, what);
    od_run_child(child, &v);
    check(at, old, whole, gen, what);
    od_fill(at, whole, gen + 7);
    v.old = whole;
    v.gen = gen + 7;
    od_run_child(child, &v);
    check(at, whole, whole, gen + 7, what);
    OK(munmap(at, whole));
}

static void grow_in_place(uint64_t gen)
{
    char *at = frozen(gen, MORE);
    char *now = OK(remap(at, SIZE, SIZE + MORE, 0, NULL));
    CHECK(now == at, "grew in place but moved");
    check_everywhere(at, SIZE, SIZE + MORE, gen, "grown in place");
}

static void grow_moving(uint64_t gen)
{
    char *at = frozen(gen, 0);
    char *now = OK(remap(at, SIZE, 4 * SIZE, MREMAP_MAYMOVE, NULL));
    check_everywhere(now, SIZE, 4 * SIZE, gen, "grown and moved");
}

static void shrink_and_grow(uint64_t gen)
{
    char *at = frozen(gen, 0);
    CHECK(remap(at, SIZE, SIZE - MORE, 0, NULL) == at, "shrink: %s", strerror(errno));
    od_verify(at, SIZE - MORE, gen, "shrunk");
    CHECK(remap(at, SIZE - MORE, SIZE, 0, NULL) == at, "grow back: %s", strerror(errno));
    check_everywhere(at, SIZE - MORE, SIZE, gen, "shrunk and grown back");
}

static void move_fixed(uint64_t gen)
{
    char *at = frozen(gen, 0), *target = od_map(2 * SIZE);
    od_fill(target, 2 * SIZE, 1);
    od_run_child((void (*)(void *))od_refreeze, NULL); /* the target is frozen too */
    char *now = OK(remap(at, SIZE, SIZE + MORE, MREMAP_MAYMOVE | MREMAP_FIXED, target));
    CHECK(now == target, "MREMAP_FIXED went elsewhere");
    od_verify_at(target + SIZE + MORE, SIZE - MORE, 1, (SIZE + MORE) / 8, "rest of the target");
    OK(munmap(target + SIZE + MORE, SIZE - MORE));
    check_everywhere(now, SIZE, SIZE + MORE, gen, "moved over other memory");
}

static void dont_unmap(uint64_t gen)
{
    char *at = frozen(gen, 0);
    char *now = OK(remap(at, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
    CHECK(now != at, "DONTUNMAP returned the old address");
    od_verify_zero(at, SIZE, "what DONTUNMAP left");
    od_run_child((void (*)(void *))od_refreeze, NULL);
    od_verify_zero(at, SIZE, "what DONTUNMAP left, later");
    OK(munmap(at, SIZE));
    check_everywhere(now, SIZE, SIZE, gen, "what DONTUNMAP moved");
}

/* A middle piece moves away; both ends stay. */
static void move_a_piece(uint64_t gen)
{
    char *at = frozen(gen, 0);
    size_t from = 3 * OD_MB + OD_PAGE, size = 5 * OD_MB + 3 * OD_PAGE;
    char *now = OK(remap(at + from, size, size + OD_MB, MREMAP_MAYMOVE, NULL));
    od_verify_at(now, size, gen, from / 8, "the moved piece");
    od_verify_zero(now + size, OD_MB, "behind the moved piece");
    od_verify(at, from, gen, "before the hole");
    od_verify_at(at + from + size, SIZE - from - size, gen, (from + size) / 8, "after the hole");
    od_run_child((void (*)(void *))od_refreeze, NULL);
    od_verify_at(now, size, gen, from / 8, "the moved piece, later");
    OK(munmap(now, size + OD_MB));
    OK(munmap(at, SIZE));
}

static void show(const char *what, void *result)
{
    printf("%s: %s\n", what, result == MAP_FAILED ? strerrorname_np(errno) : "done");
}

static void refusals(uint64_t gen)
{
    char *at = frozen(gen, 0);
    show("old size 0", remap(at, 0, SIZE, MREMAP_MAYMOVE, NULL));
    show("unaligned", remap(at + 1, SIZE, SIZE, 0, NULL));
    show("new size 0", remap(at, SIZE, 0, MREMAP_MAYMOVE, NULL));
    show("unknown flag", remap(at, SIZE, SIZE, 64, NULL));
    show("fixed without maymove", remap(at, SIZE, SIZE, MREMAP_FIXED, at + 2 * SIZE));
    show("overlapping", remap(at, SIZE, SIZE, MREMAP_FIXED | MREMAP_MAYMOVE, at + OD_MB));
    show("same size", remap(at, SIZE, SIZE, 0, NULL));
    od_verify(at, SIZE, gen, "after refused calls");
    OK(munmap(at, SIZE));
    show("of nothing", remap(at, SIZE, 2 * SIZE, MREMAP_MAYMOVE, NULL));
}

/* What lies behind the new end is unmapped first, whatever may be done to it: it does not count. */
static void shrinks_over_mixed_access(uint64_t gen)
{
    for (size_t kept = SIZE / 2; kept >= SIZE / 8; kept /= 2) {
        char *at = frozen(gen, 0), *target = od_map(SIZE);
        OK(mprotect(at + SIZE / 2, SIZE / 4, PROT_READ));
        CHECK(remap(at, SIZE, kept, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target, "%s",
              strerror(errno));
        od_verify(target, kept, gen, "shrunk and moved");
        od_verify_zero(target + kept, SIZE - kept, "what was there");
        OK(munmap(target, SIZE));
    }
}

/* A property of a page that is taken back, or a hint: what was one mapping is one again. */
static void grow_after(const char *what, uint64_t gen)
{
    char *at = frozen(gen, 0), *page = at + SIZE / 2;
    size_t empty = 0;
    if (!strcmp(what, "a lock")) {
        OK(mlock(page, OD_PAGE));
        OK(munlock(page, OD_PAGE));
        od_thaw();
    } else if (!strcmp(what, "MADV_DONTFORK")) {
        OK(madvise(page, OD_PAGE, MADV_DONTFORK));
        OK(madvise(page, OD_PAGE, MADV_DOFORK));
        od_thaw();
    } else {
        empty = OD_MB;
        OK(madvise(page, empty, MADV_DONTNEED));
        if (!strcmp(what, "MADV_RANDOM"))
            OK(madvise(at, SIZE, MADV_RANDOM));
        else
            CHECK(mlockall(99) == -1, "mlockall accepts what is no flag");
    }
    char *now = remap(at, SIZE, SIZE + MORE, MREMAP_MAYMOVE, NULL);
    CHECK(now != MAP_FAILED, "growing after %s: %s", what, strerror(errno));
    od_verify(now, SIZE / 2, gen, what);
    od_verify_zero(now + SIZE / 2, empty, what);
    od_verify_at(now + SIZE / 2 + empty, SIZE / 2 - empty, gen, (SIZE / 2 + empty) / 8, what);
    od_verify_zero(now + SIZE, MORE, what);
    OK(munmap(now, SIZE + MORE));
}

int main(void)
{
    for (by_syscall = 0; by_syscall < 2; by_syscall++)
        for (uint64_t gen = 10; gen < 12; gen++) {
            grow_in_place(gen);
            grow_moving(gen);
            shrink_and_grow(gen);
            move_fixed(gen);
            dont_unmap(gen);
            move_a_piece(gen);
            refusals(gen);
            shrinks_over_mixed_access(gen);
            grow_after("a lock", gen);
            grow_after("MADV_DONTFORK", gen);
            grow_after("MADV_RANDOM", gen);
        }
    grow_after("a refused mlockall", 12);
    return od_done();
}
