/* Every advice answers on frozen memory what it answers on memory never frozen, and on stock.
 * The pages keep their bytes, or read zeros, as the advice says. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (8 * OD_MB)

struct advice {
    int number;
    const char *name;
    char after; /* '=' bytes stay, '0' zeros, '?' either, '-' not readable */
};

static const struct advice table[] = {
    {0, "NORMAL", '='},
    {1, "RANDOM", '='},
    {2, "SEQUENTIAL", '='},
    {3, "WILLNEED", '='},
    {4, "DONTNEED", '0'},
    {5, "5", '='},
    {8, "FREE", '?'},
    {9, "REMOVE", '='},
    {10, "DONTFORK", '='},
    {11, "DOFORK", '='},
    {12, "MERGEABLE", '='},
    {13, "UNMERGEABLE", '='},
    {14, "HUGEPAGE", '='},
    {15, "NOHUGEPAGE", '='},
    {16, "DONTDUMP", '='},
    {17, "DODUMP", '='},
    {18, "WIPEONFORK", '='},
    {19, "KEEPONFORK", '='},
    {20, "COLD", '='},
    {21, "PAGEOUT", '='},
    {22, "POPULATE_READ", '='},
    {23, "POPULATE_WRITE", '='},
    {24, "DONTNEED_LOCKED", '0'},
    {102, "GUARD_INSTALL", '-'},
    {103, "GUARD_REMOVE", '='},
    {26, "26", '='},
    {99, "99", '='},
    {-1, "-1", '='},
};

static const char *answer(int result, int error)
{
    return result == 0 ? "0" : strerrorname_np(error);
}

/* It gives a property, which frozen memory would lose later: thawed before. */
static int is_property(int advice)
{
    return advice == MADV_DONTFORK || advice == MADV_DONTDUMP || advice == MADV_WIPEONFORK ||
           advice == MADV_MERGEABLE;
}

/* True if every byte can be read: asked of the kernel, which answers EFAULT instead of a signal. */
static int is_readable(const char *at, size_t size)
{
    static int pipes[2] = {-1, -1};
    if (pipes[0] < 0)
        OK(pipe2(pipes, O_CLOEXEC | O_NONBLOCK));
    for (size_t i = 0; i < size; i += OD_PAGE) {
        char byte;
        if (write(pipes[1], at + i, 1) != 1)
            return 0;
        CHECK(read(pipes[0], &byte, 1) == 1, "pipe");
    }
    return 1;
}

/* `zeros`: the advice was taken, and it was one that drops. */
static void check(const struct advice *a, char *at, size_t from, size_t size, int result,
                  const char *which)
{
    char what[100];
    snprintf(what, sizeof what, "%s memory after %s", which, a->name);
    od_verify(at, from, 3, what);
    od_verify_at(at + from + size, SIZE - from - size, 3, (from + size) / 8, what);
    if (result != 0 || a->after == '=') {
        od_verify_at(at + from, size, 3, from / 8, what);
    } else if (a->after == '0') {
        od_verify_zero(at + from, size, what);
    } else if (a->after == '-') {
        CHECK(!is_readable(at + from, OD_PAGE), "%s: a guard page can be read", what);
        OK(madvise(at + from, size, 103));
        od_verify_zero(at + from, size, what);
    }
}

static void nothing(void *argument) { (void)argument; }

static void try_one(const struct advice *a, size_t from, size_t size, int by_syscall)
{
    char *frozen = od_map(SIZE), *fresh;
    od_fill(frozen, SIZE, 3);
    od_run_child(nothing, NULL);
    od_freeze(); /* what gives memory back again and again is left out of a freeze by fork */
    fresh = od_map(SIZE);
    od_fill(fresh, SIZE, 3);
    int result[2], error[2];
    for (int i = 0; i < 2; i++) {
        char *at = (i ? fresh : frozen) + from;
        errno = 0;
        result[i] =
            by_syscall ? syscall(SYS_madvise, at, size, a->number) : madvise(at, size, a->number);
        error[i] = errno;
        CHECK(result[i] != 0 || !is_property(a->number) || od_is_anonymous(at, size),
              "frozen memory has the property %s", a->name);
        check(a, at - from, from, size, result[i], i ? "fresh" : "frozen");
    }
    CHECK(result[0] == result[1] && error[0] == error[1], "%s on %zu bytes: frozen %s, fresh %s",
          a->name, size, answer(result[0], error[0]), answer(result[1], error[1]));
    printf("%s on %zu kB by %s: %s\n", a->name, size / 1024, by_syscall ? "syscall" : "wrapper",
           answer(result[0], error[0]));
    od_run_child(nothing, NULL);
    OK(munmap(frozen, SIZE));
    OK(munmap(fresh, SIZE));
}

int main(void)
{
    is_readable("x", 1); /* opens its pipe before the listing below */
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        try_one(&table[i], 0, SIZE, 0);
        try_one(&table[i], 3 * OD_MB + OD_PAGE, 2 * OD_MB, 1);
    }
    return od_done();
}
