/* Roads by which frozen memory reaches the kernel's own madvise or mremap although it still shows
 * an image, and properties that thawing must keep. Each must end as on stock. */
// odtest: expect=froze mem=300
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define PART (2 * OD_MB)

static char *p;
static int failures;

static void nothing(void *argument) { (void)argument; }

static void begin(void)
{
    char *all = od_map(SIZE + PART);
    p = (char *)(((uintptr_t)all + PART - 1) & ~(PART - 1));
    od_fill(p, SIZE, 7);
    od_run_child(nothing, NULL);
    od_freeze();
}

static void expect(const char *what, int good)
{
    if (!good)
        fprintf(stderr, "mem_stale: %s\n", what);
    failures += !good;
}

static void zeros(const char *what, const char *memory, size_t bytes)
{
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i += 8)
        wrong += *(const uint64_t *)(memory + i) != 0;
    expect(what, wrong == 0);
}

static int child_reads(char *memory)
{
    int status;
    pid_t pid = od_fork();
    if (pid == 0) {
        (void)*(volatile char *)memory;
        _exit(0);
    }
    OK(waitpid(pid, &status, 0));
    return status == 0;
}

/* DONTNEED refused for a locked part, and given again when it is unlocked. */
static void refused_then_given(size_t lock_at)
{
    begin();
    if (mlock(p + lock_at, OD_MB) != 0)
        return; /* RLIMIT_MEMLOCK */
    expect("DONTNEED of locked memory is refused", madvise(p + PART, 2 * PART, MADV_DONTNEED) < 0);
    OK(munlock(p + lock_at, OD_MB));
    OK(madvise(p + PART, 2 * PART, MADV_DONTNEED));
    zeros("DONTNEED after a refused one", p + PART, 2 * PART);
}

/* Memory that `join` does not take moves as it is: several protections (Linux 6.17), or none. */
static void moved_then_given(int protection, size_t length)
{
    begin();
    char *to = od_map(SIZE);
    OK(mprotect(p + 2 * PART, length, protection));
    size_t from = protection == PROT_NONE ? 2 * PART : 0,
           bytes = protection == PROT_NONE ? length : SIZE;
    if (mremap(p + from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
        return; /* an older kernel */
    OK(mprotect(to, bytes, PROT_READ | PROT_WRITE));
    od_verify_at(to, bytes, 7, from / 8, "moved");
    OK(madvise(to, PART, MADV_DONTNEED));
    zeros("DONTNEED of what was moved with its protection", to, PART);
}

static void grown_without_access(int flags)
{
    begin();
    OK(mprotect(p, PART, PROT_NONE));
    size_t length = flags ? PART : 3 * PART;
    char *to = mremap(p, PART, length, MREMAP_MAYMOVE | flags, NULL);
    CHECK(to != MAP_FAILED, "mremap of PROT_NONE, flags %d: %s", flags, strerror(errno));
    OK(mprotect(to, length, PROT_READ | PROT_WRITE));
    od_verify(to, PART, 7, "moved without access");
    if (flags) {
        OK(mprotect(p, PART, PROT_READ | PROT_WRITE));
        zeros("what DONTUNMAP left behind of PROT_NONE", p, PART);
    } else
        zeros("what PROT_NONE memory grew by", to + PART, 2 * PART);
}

/* jemalloc purges so. */
static void given_by_vector(void)
{
    begin();
    int self = (int)OK(syscall(SYS_pidfd_open, getpid(), 0));
    struct { void *base; size_t length; } piece = {p, 2 * PART};
    /* Linux 6.13 */
    if (syscall(SYS_process_madvise, self, &piece, 1, MADV_DONTNEED, 0) == (long)(2 * PART))
        zeros("process_madvise(DONTNEED) of oneself", p, 2 * PART);
    close(self);
}

static void kept_from_children(void)
{
    begin();
    OK(madvise(p, SIZE, MADV_DONTFORK));
    OK(madvise(p, PART, MADV_DONTNEED));
    expect("DONTFORK memory stays out of children after DONTNEED", !child_reads(p));
    begin();
    OK(madvise(p, SIZE, MADV_DONTFORK));
    char *to = OK(mremap(p, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, od_map(SIZE)));
    expect("DONTFORK memory stays out of children after mremap", !child_reads(to));
    begin();
    OK(madvise(p, SIZE, MADV_DONTFORK));
    od_thaw();
    expect("DONTFORK memory stays out of children after a thaw", !child_reads(p));
}

static void stays_locked(void)
{
    begin();
    if (mlock(p, PART) != 0)
        return;
    long locked = od_proc_kb("/proc/self/status", "VmLck:");
    madvise(p, OD_MB, 24 /* DONTNEED_LOCKED, Linux 5.18 */);
    expect("locked memory stays locked after DONTNEED_LOCKED",
           od_proc_kb("/proc/self/status", "VmLck:") == locked);
    begin();
    OK(munlockall());
    OK(mlock(p, PART));
    p = OK(mremap(p, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED, od_map(PART)));
    expect("locked memory stays locked after mremap",
           od_proc_kb("/proc/self/status", "VmLck:") == locked);
    OK(munlockall());
}

int main(void)
{
    refused_then_given(PART);
    refused_then_given(PART + OD_MB);
    moved_then_given(PROT_READ, OD_MB);
    moved_then_given(PROT_NONE, PART);
    grown_without_access(0);
    grown_without_access(4 /* MREMAP_DONTUNMAP */);
    given_by_vector();
    kept_from_children();
    stays_locked();
    CHECK(failures == 0, "%d differences", failures);
    return od_done();
}
