/* Every call that changes a mapping, on memory that is live: it answers as on stock, and what the
 * parent writes after the next fork is not seen by the child. Content that is given up reads as
 * zeros, in pieces of every size, and stays zero in children. */
// odtest: modes=stock,huge,live expect=froze live=shared timeout=120 mem=300
#include "odtest.h"
#include <linux/mempolicy.h>

#define SIZE (12 * OD_MB)
#define PART (2 * OD_MB + 3 * OD_PAGE)

static char *memory, *shadow;

static void check(const char *at, size_t size, const char *same, const char *what)
{
    for (size_t i = 0; i < size; i += OD_PAGE)
        CHECK(memcmp(at + i, same + i, OD_PAGE) == 0, "%s: page %zu differs", what, i / OD_PAGE);
}

/* A fork whose child sees what is there now, whatever the parent writes then. */
static void fork_and_look(const char *what, char *at, size_t size, int writable)
{
    struct od_gate gate;
    od_gate_make(&gate);
    pid_t pid = od_fork();
    if (pid == 0) {
        od_gate_wait(&gate);
        check(at, size, shadow, what);
        _exit(0);
    }
    if (writable)
        for (size_t i = 0; i < size; i += 2 * OD_PAGE)
            at[i] ^= 0x55;
    od_gate_open(&gate, 1);
    od_join(pid);
    if (writable)
        for (size_t i = 0; i < size; i += 2 * OD_PAGE)
            at[i] ^= 0x55;
    check(at, size, shadow, what);
    od_gate_drop(&gate);
}

static char *fresh(void)
{
    char *at = OK(
        mmap(NULL, SIZE + 2 * OD_MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    at = (char *)(((uintptr_t)at + 2 * OD_MB - 1) & -(2 * OD_MB));
    od_fill_at(at, SIZE, 3, 0);
    memcpy(shadow, at, SIZE);
    memory = at;
    /* Frozen by the first fork, live when its child has ended. */
    fork_and_look("new memory", at, SIZE, 1);
    fork_and_look("live memory", at, SIZE, 1);
    return at;
}

static void protect(void)
{
    char *at = fresh();
    OK(mprotect(at + PART, PART, PROT_READ));
    fork_and_look("mprotect", at, SIZE, 0);
    OK(mprotect(at + PART, PART, PROT_READ | PROT_WRITE));
    fork_and_look("mprotect back", at, SIZE, 1);
    fork_and_look("mprotect back, live", at, SIZE, 1);
    OK(munmap(at, SIZE));
}

static void unmap(void)
{
    char *at = fresh();
    OK(munmap(at + PART, OD_PAGE));
    memset(shadow + PART, 0x77, OD_PAGE);
    char *hole = OK(mmap(at + PART, OD_PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    memset(hole, 0x77, OD_PAGE);
    fork_and_look("munmap", at, SIZE, 1);
    OK(mmap(at, 2 * OD_MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    memset(shadow, 0, 2 * OD_MB);
    fork_and_look("MAP_FIXED", at, SIZE, 1);
    OK(munmap(at, SIZE));
}

static void move(void)
{
    char *at = fresh();
    char *to = OK(mremap(at, SIZE, SIZE + PART, MREMAP_MAYMOVE));
    od_fill_at(to + SIZE, PART / 8 * 8, 5, 0);
    fork_and_look("mremap", to, SIZE, 1);
    fork_and_look("mremap, again", to, SIZE, 1);
    CHECK(od_differs_at(to + SIZE, PART, 5, 0) == (size_t)-1, "mremap: what has grown");
    OK(munmap(to, SIZE + PART));
    at = fresh();
    char *other = fresh();
    OK(mremap(at, 4 * OD_MB, 4 * OD_MB, MREMAP_MAYMOVE | MREMAP_FIXED, other + OD_MB));
    memcpy(shadow + OD_MB, other + OD_MB, 4 * OD_MB);
    CHECK(od_differs_at(other + OD_MB, 4 * OD_MB, 3, 0) == (size_t)-1, "mremap over live memory");
    fork_and_look("mremap over it", other, SIZE, 1);
    OK(munmap(other, SIZE));
}

static void advise(void)
{
    static const int kinds[] = {MADV_RANDOM,    MADV_SEQUENTIAL, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
                                MADV_MERGEABLE, MADV_DONTDUMP,   MADV_WILLNEED, MADV_COLD,
                                MADV_PAGEOUT,   MADV_DOFORK,     MADV_FREE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds - 1; i++) {
        char *at = fresh();
        madvise(at + PART, PART, kinds[i]);
        char text[40];
        snprintf(text, sizeof text, "advice %d", kinds[i]);
        fork_and_look(text, at, SIZE, 1);
        fork_and_look(text, at, SIZE, 1);
        OK(munmap(at, SIZE));
    }
    char *at = fresh();
    OK(madvise(at + PART, PART, MADV_DONTFORK));
    pid_t pid = od_fork();
    if (pid == 0) {
        unsigned char there;
        _exit(mincore(at + PART, OD_PAGE, &there) == -1 && errno == ENOMEM ? 0 : 9);
    }
    od_join(pid);
    OK(munmap(at, SIZE));
}

static void give_up(void)
{
    static const size_t sizes[] = {OD_PAGE, 16 * OD_PAGE, 40 * OD_PAGE, 2 * OD_MB, PART, 4 * OD_MB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *at = fresh();
        for (size_t from = OD_PAGE; from + sizes[i] <= SIZE; from += 3 * sizes[i]) {
            OK(madvise(at + from, sizes[i], MADV_DONTNEED));
            memset(shadow + from, 0, sizes[i]);
        }
        check(at, SIZE, shadow, "MADV_DONTNEED");
        fork_and_look("MADV_DONTNEED", at, SIZE, 1);
        OK(madvise(at, SIZE, MADV_DONTNEED));
        memset(shadow, 0, SIZE);
        fork_and_look("MADV_DONTNEED of all", at, SIZE, 1);
        OK(munmap(at, SIZE));
    }
    /* Beyond its ends, with a hole: the answer is stock's, and what is there reads as zeros. */
    char *at = fresh();
    OK(munmap(at + SIZE - OD_PAGE, OD_PAGE));
    int answer = madvise(at, SIZE, MADV_DONTNEED), error = errno;
    printf("over a hole: %d %s\n", answer, answer ? strerrorname_np(error) : "");
    memset(shadow, 0, SIZE);
    check(at, SIZE - OD_PAGE, shadow, "MADV_DONTNEED over a hole");
    OK(munmap(at, SIZE));
}

static void lock_and_bind(void)
{
    char *at = fresh();
    int answer = mlock(at + PART, 16 * OD_PAGE);
    fork_and_look("mlock", at, SIZE, 1);
    if (answer == 0)
        OK(munlock(at + PART, 16 * OD_PAGE));
    fork_and_look("munlock", at, SIZE, 1);
    OK(munmap(at, SIZE));
    at = fresh();
    syscall(SYS_mbind, at + PART, PART & -OD_PAGE, MPOL_PREFERRED, NULL, 0, 0);
    fork_and_look("mbind", at, SIZE, 1);
    OK(munmap(at, SIZE));
}

int main(void)
{
    shadow = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    protect();
    unmap();
    move();
    advise();
    give_up();
    lock_and_bind();
    return od_done();
}
