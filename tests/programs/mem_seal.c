/* mseal (Linux 6.10): a sealed mapping cannot be replaced, so it must be left alone or frozen
 * before; sealed or not, it answers and holds what it does on stock. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define MSEAL 462

static void show(const char *what, long result)
{
    printf("%s: %s\n", what, result == -1 ? strerrorname_np(errno) : "done");
}

struct view {
    char *at;
    uint64_t gen;
};

static void child(void *argument)
{
    struct view *v = argument;
    od_verify(v->at, SIZE, v->gen, "child");
    od_fill(v->at, SIZE, v->gen + 70);
    od_refreeze();
    od_verify(v->at, SIZE, v->gen + 70, "child after its own writes");
}

/* The calls sealing forbids; the memory stays for good, so each round has its own. */
static void try_calls(struct view v, const char *when)
{
    printf("%s\n", when);
    show("mprotect", mprotect(v.at, OD_PAGE, PROT_READ));
    show("munmap", munmap(v.at, OD_PAGE));
    show("mremap", (long)mremap(v.at, SIZE, SIZE / 2, 0));
    show("mmap over",
         (long)mmap(v.at, OD_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    show("DONTNEED", madvise(v.at, OD_PAGE, MADV_DONTNEED));
    od_verify_zero(v.at, OD_PAGE, "DONTNEED of writable sealed memory");
    od_fill(v.at, OD_PAGE, v.gen);
    show("mlock", mlock(v.at, OD_PAGE));
    show("munlock", munlock(v.at, OD_PAGE));
    od_verify(v.at, SIZE, v.gen, when);
}

static void rounds(struct view *v)
{
    for (int i = 0; i < 3; i++) {
        od_run_child(child, v);
        od_verify(v->at, SIZE, v->gen, "parent");
        v->gen++;
        od_fill(v->at, SIZE, v->gen);
        if (i == 1)
            od_refreeze();
    }
}

/* Later versions of the C library have a function. */
static long seal(void *at, size_t size)
{
    int (*function)(void *, size_t, unsigned long);
    function = (__typeof__(function))dlsym(RTLD_DEFAULT, "mseal");
    OK(syscall(MSEAL, at, size / 2, 0));
    return function ? function(at, size, 0) : syscall(MSEAL, at, size, 0);
}

int main(void)
{
    struct view sealed_first = {od_map(SIZE), 10}, frozen_first = {od_map(SIZE), 20};
    od_fill(sealed_first.at, SIZE, sealed_first.gen);
    od_fill(frozen_first.at, SIZE, frozen_first.gen);
    if (syscall(MSEAL, sealed_first.at, SIZE, 0) != 0)
        od_skip("mseal: %s (it came with Linux 6.10)", strerror(errno));
    try_calls(sealed_first, "sealed, then forked");
    rounds(&sealed_first);
    try_calls(sealed_first, "sealed, forked");
    rounds(&frozen_first);
    show("mseal on memory that was forked", seal(frozen_first.at, SIZE));
    CHECK(od_is_anonymous(frozen_first.at, SIZE), "frozen memory was sealed");
    rounds(&frozen_first);
    try_calls(frozen_first, "forked, then sealed");
    rounds(&frozen_first);
    return od_done();
}
