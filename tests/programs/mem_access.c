// odtest: expect=froze timeout=60 mem=100
/*
 * What a program may do with a part of its memory outlives the part's content: after MADV_DONTNEED
 * the access is what mprotect had made it, page by page, for parts of any size.
 */
#include "odtest.h"

#define SIZE (16 * OD_MB)

static char *world;

/* The kernel copies a byte there, or answers EFAULT. */
static int is_writable(char *at)
{
    static int zero = -1;
    if (zero < 0)
        zero = OK(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    return read(zero, at, 1) == 1;
}

static int access_to(char *page)
{
    int read = od_is_readable(page), write = is_writable(page);
    return (read ? PROT_READ : 0) | (write ? PROT_WRITE : 0);
}

static void has_access(int want, size_t from, size_t bytes, const char *when)
{
    for (size_t at = from; at < from + bytes; at += OD_PAGE)
        CHECK(access_to(world + at) == want, "%s: page %zu of %zu has access %d, not %d", when,
              (at - from) / OD_PAGE, bytes / OD_PAGE, access_to(world + at), want);
}

static void nothing(void *unused) { (void)unused; }

static void begin(void)
{
    OK(mprotect(world, SIZE, PROT_READ | PROT_WRITE));
    od_fill(world, SIZE, 5);
    od_freeze();
    od_run_child(nothing, NULL);
}

/* One part in the middle, given up together with what is around it. */
static void one_part(int access, size_t bytes, size_t around)
{
    size_t at = 4 * OD_MB + 3 * OD_PAGE;
    begin();
    OK(mprotect(world + at, bytes, access));
    OK(madvise(world + at - around, bytes + 2 * around, MADV_DONTNEED));
    has_access(access, at, bytes, "the part");
    has_access(PROT_READ | PROT_WRITE, at - OD_PAGE, OD_PAGE, "before it");
    has_access(PROT_READ | PROT_WRITE, at + bytes, OD_PAGE, "behind it");
    OK(mprotect(world + at, bytes, PROT_READ | PROT_WRITE));
    od_verify_zero(world + at - around, bytes + 2 * around, "given up");
    /* The look at its access has written to the page before the part. */
    od_verify(world, at - around - OD_PAGE, 5, "before what was given up");
}

/* mprotect that fails at a hole has changed what is before it. */
static void to_a_hole(void)
{
    size_t hole = 8 * OD_MB, part = OD_MB;
    begin();
    OK(munmap(world + hole, OD_PAGE));
    CHECK(mprotect(world + hole - part, 2 * part, PROT_READ) == -1 && errno == ENOMEM, "a hole");
    OK(madvise(world + hole - 2 * part, 2 * part, MADV_DONTNEED));
    has_access(PROT_READ, hole - part, part, "before the hole");
    has_access(PROT_READ | PROT_WRITE, hole + OD_PAGE, part, "behind the hole");
    OK(munmap(world, SIZE));
    world = od_map(SIZE);
}

int main(void)
{
    static const int ACCESS[] = { PROT_NONE, PROT_READ };
    static const size_t BYTES[] = { OD_PAGE, 5 * OD_PAGE, 128 * 1024, 3 * OD_MB };
    world = od_map(SIZE);
    for (size_t a = 0; a < sizeof ACCESS / sizeof *ACCESS; a++)
        for (size_t b = 0; b < sizeof BYTES / sizeof *BYTES; b++)
            for (size_t around = 0; around <= 64 * OD_PAGE; around += 64 * OD_PAGE)
                one_part(ACCESS[a], BYTES[b], around);
    to_a_hole();
    return od_done();
}
