/* Memory grows within the room that RLIMIT_AS leaves for what it grows by, not for its new size: by
 * mremap, by realloc, of one mapping and of several, in place or moved. Too little room is refused,
 * and nothing is lost. */
// odtest: expect=froze user=any timeout=60 mem=300
#include "odtest.h"
#include <malloc.h>

#define HUGE_PAGE (2 * OD_MB)
#define MORE OD_MB

static void nothing(void *unused) { (void)unused; }

/* So many bytes of address space may come; the hard limit stays, or not. */
static struct rlimit leave(size_t room, int hard)
{
    struct rlimit before, now;
    size_t pages;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%zu", &pages) == 1, "statm");
    fclose(statm);
    OK(getrlimit(RLIMIT_AS, &before));
    now = before;
    now.rlim_cur = pages * OD_PAGE + room;
    if (hard)
        now.rlim_max = now.rlim_cur;
    OK(setrlimit(RLIMIT_AS, &now));
    return before;
}

/* Huge pages fit, nothing follows it, and a page lies behind. */
static char *walled(size_t size)
{
    char *all = od_map(size + 2 * HUGE_PAGE);
    char *at = all + (-(uintptr_t)all & (HUGE_PAGE - 1));
    if (at > all)
        OK(munmap(all, at - all));
    OK(munmap(at + size + OD_PAGE, all + size + 2 * HUGE_PAGE - (at + size + OD_PAGE)));
    OK(mprotect(at + size, OD_PAGE, PROT_NONE));
    od_fill(at, size, 3);
    od_run_child(nothing, NULL);
    return at;
}

static void moved(size_t size, int hard)
{
    char *at = walled(size);
    struct rlimit before = leave(MORE + 16 * OD_PAGE, hard);
    CHECK(mremap(at, size, size + 8 * MORE, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM,
          "too much: %s", strerror(errno));
    od_verify(at, size, 3, "refused");
    char *now = OK(mremap(at, size, size + MORE, MREMAP_MAYMOVE));
    if (!hard)
        OK(setrlimit(RLIMIT_AS, &before));
    od_verify(now, size, 3, "moved");
    od_verify_zero(now + size, MORE, "moved");
    od_fill(now, size + MORE, 4);
    od_verify(now, size + MORE, 4, "written");
    OK(munmap(now, size + MORE));
}

static void reallocated(void)
{
    size_t size = 16 * OD_MB;
    char *block = malloc(size);
    CHECK(block, "malloc");
    od_fill(block, size, 8);
    od_run_child(nothing, NULL);
    struct rlimit before = leave(MORE + 16 * OD_PAGE, 0);
    char *now = realloc(block, size + MORE);
    OK(setrlimit(RLIMIT_AS, &before));
    CHECK(now, "realloc: %s", strerror(errno));
    od_verify(now, size, 8, "reallocated");
    free(now);
}

/* The hard limit is for a process of its own: it does not come back. */
static void hard(void *unused)
{
    (void)unused;
    moved(HUGE_PAGE, 1);
}

int main(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    moved(HUGE_PAGE, 0);
    moved(16 * OD_MB, 0);
    reallocated();
    od_run_child(hard, NULL);
    return od_done();
}
