/* Memory calls by a raw instruction, as allocators, sanitizers and Go make them: no wrapper sees
 * them. The runtime must catch them or leave such memory alone; the bytes must be right either way.
 */
// odtest: expect=any timeout=60
#include "raw_call.h"

#define SIZE (16 * OD_MB)

static char *raw_map(size_t size)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    long at = raw_call(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(at > 0, "mmap: %ld", at);
    return (char *)at;
}

static void fork_once(void) { od_run_child((void (*)(void *))od_refreeze, NULL); }

static int wrong;

/* Goes on after a wrong byte: the report is to name every call that is missed. */
static void note(size_t bad, const char *what)
{
    if (bad == (size_t)-1)
        return;
    fprintf(stderr, "wrong bytes after a raw %s, at byte %zu\n", what, bad);
    wrong = 1;
}

static size_t not_zero(const char *at, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (((const volatile char *)at)[i])
            return i;
    return (size_t)-1;
}

static void raw_dontneed(char *at)
{
    od_fill(at, SIZE, 1);
    fork_once();
    long given_up = raw_call(SYS_madvise, (long)(at + OD_MB), 5 * OD_MB, MADV_DONTNEED, 0, 0, 0);
    CHECK(given_up == 0, "madvise");
    note(not_zero(at + OD_MB, 5 * OD_MB), "madvise(MADV_DONTNEED)");
    note(od_differs_at(at, OD_MB, 1, 0), "madvise(MADV_DONTNEED), before it");
    note(od_differs_at(at + 6 * OD_MB, SIZE - 6 * OD_MB, 1, 6 * OD_MB / 8),
         "madvise(MADV_DONTNEED), behind it");
    fork_once();
    note(not_zero(at + OD_MB, 5 * OD_MB), "madvise(MADV_DONTNEED), after another fork");
}

static void raw_remap(char *at)
{
    od_fill(at, SIZE, 2);
    fork_once();
    long result = raw_call(SYS_mremap, (long)at, SIZE, 2 * SIZE, MREMAP_MAYMOVE, 0, 0);
    CHECK(result > 0, "mremap: %ld", result);
    char *now = (char *)result;
    note(od_differs_at(now, SIZE, 2, 0), "mremap, the old part");
    /* asked by write(): a page behind the end of a file would be a SIGBUS */
    int pipes[2];
    OK(pipe2(pipes, O_NONBLOCK));
    if (write(pipes[1], now + 2 * SIZE - 1, 1) != 1)
        note(2 * SIZE - 1, "mremap: the new part is behind the end of a file");
    else
        note(not_zero(now + SIZE, SIZE), "mremap, the new part");
    close(pipes[0]);
    close(pipes[1]);
    CHECK(raw_call(SYS_munmap, (long)now, 2 * SIZE, 0, 0, 0, 0) == 0, "munmap");
}

static void raw_replace(char *at)
{
    od_fill(at, SIZE, 3);
    fork_once();
    CHECK(raw_call(SYS_munmap, (long)(at + 4 * OD_MB), 2 * OD_MB, 0, 0, 0, 0) == 0, "munmap");
    long again = raw_call(SYS_mmap, (long)(at + 4 * OD_MB), 2 * OD_MB, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(again == (long)(at + 4 * OD_MB), "mmap: %ld", again);
    note(not_zero(at + 4 * OD_MB, 2 * OD_MB), "munmap and mmap");
    od_fill_at(at + 4 * OD_MB, 2 * OD_MB, 3, 4 * OD_MB / 8);
    CHECK(raw_call(SYS_mprotect, (long)at, SIZE, PROT_READ, 0, 0, 0) == 0, "mprotect");
    fork_once();
    od_refreeze();
    CHECK(raw_call(SYS_mprotect, (long)at, SIZE, PROT_READ | PROT_WRITE, 0, 0, 0) == 0, "mprotect");
    note(od_differs_at(at, SIZE, 3, 0), "mprotect and munmap");
}

/* clone without the wrapper: the child writes and drops, the parent must not notice. */
static void raw_fork(char *at)
{
    od_fill(at, SIZE, 4);
    fork_once();
    long pid = raw_call(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    CHECK(pid >= 0, "clone: %ld", pid);
    if (pid == 0) {
        raw_call(SYS_madvise, (long)at, 2 * OD_MB, MADV_DONTNEED, 0, 0, 0);
        note(not_zero(at, 2 * OD_MB), "madvise(MADV_DONTNEED) in a child by raw clone");
        note(od_differs_at(at + 2 * OD_MB, SIZE - 2 * OD_MB, 4, 2 * OD_MB / 8), "clone");
        _exit(wrong);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    wrong |= status != 0;
    note(od_differs_at(at, SIZE, 4, 0), "clone, in the parent");
}

int main(void)
{
    for (int round = 0; round < 3; round++) {
        char *at = raw_map(SIZE);
        raw_dontneed(at);
        raw_replace(at);
        raw_fork(at);
        raw_remap(at);
    }
    return od_done() | wrong;
}
