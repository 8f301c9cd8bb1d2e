/* Code that gives memory up by a raw instruction, loaded after the first freeze: the next pass
 * finds it, and leaves the program plain. Large harmless code is loaded beside it. */
// odtest: modes=stock,huge,small,user expect=froze mem=300
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define CODE (3 * OD_MB)

typedef long (*advise_fn)(void *, size_t, int);

static char *p;

static void child_reads(void *argument)
{
    od_verify(p, SIZE, *(uint64_t *)argument, "in a child");
}

/* A private, executable mapping of a new file of CODE bytes with `length` bytes of code at `at`. */
static char *load(const void *code, size_t length, size_t at)
{
    char name[] = "late_code.XXXXXX";
    int fd = OK(mkstemp(name));
    OK(unlink(name));
    OK(ftruncate(fd, CODE));
    CHECK(pwrite(fd, code, length, at) == (ssize_t)length, "pwrite: %s", strerror(errno));
    char *memory = OK(mmap(NULL, CODE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
    close(fd);
    return memory;
}

/* madvise and getpid, each a call and a return; as data that is never executable here. BEFORE: so
 * much of the code lies before the border of the parts in which code is searched. */
#if defined __aarch64__
/* mov x8, #NUMBER; svc #0; ret */
static uint32_t raw[] = {0xd2800008 | SYS_madvise << 5, 0xd4000001, 0xd65f03c0};
static uint32_t harmless[] = {0xd2800008 | SYS_getpid << 5, 0xd4000001, 0xd65f03c0};
enum { BEFORE = 4 };
#else
/* mov $NUMBER, %eax; syscall; ret */
static unsigned char raw[] = {0xb8, 28, 0, 0, 0, 0x0f, 0x05, 0xc3};
static unsigned char harmless[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3};
enum { BEFORE = 6 };
#endif

int main(void)
{
    uint64_t generation = 3;
    p = od_map(SIZE);
    load(harmless, sizeof harmless, 80);
    od_fill(p, SIZE, generation);
    od_freeze();
    od_run_child(child_reads, &generation);
    size_t at = OD_MB - BEFORE;
    char *code = load(raw, sizeof raw, at);
    od_refreeze();
    od_run_child(child_reads, &generation);
    advise_fn advise = (advise_fn)(code + at);
    CHECK(advise(p, SIZE, MADV_DONTNEED) == 0, "madvise by a raw instruction");
    for (size_t i = 0; i < SIZE; i += OD_PAGE)
        CHECK(p[i] == 0, "old byte at %zu", i);
    od_fill(p, SIZE, ++generation);
    od_refreeze();
    od_run_child(child_reads, &generation);
    return od_done();
}
