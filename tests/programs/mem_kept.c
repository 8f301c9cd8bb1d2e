/* What a program said of memory before it was frozen, or while it is, is true of it when it is
 * anonymous again: advice about huge pages, and that nothing is reserved. Given up, grown, moved
 * and thawed; by parent and child. */
// odtest: expect=froze user=any timeout=60 mem=300
#include "odtest.h"

#define SIZE (8 * OD_MB)
#define PART (2 * OD_MB)

struct kind {
    int advice, flags;
    const char *shown;
};

static const struct kind kinds[] = {
    {MADV_HUGEPAGE, 0, "hg"}, {MADV_NOHUGEPAGE, 0, "nh"}, {0, MAP_NORESERVE, "nr"}, {0, 0, "--"}};

/* The kernel says so of the mapping at that address (VmFlags of smaps). */
static int shows(char *at, const char *flag)
{
    char line[512];
    int here = 0, found = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps, "smaps: %s", strerror(errno));
    while (fgets(line, sizeof line, smaps)) {
        unsigned long start, end;
        char rest;
        if (sscanf(line, "%lx-%lx %c", &start, &end, &rest) == 3)
            here = (unsigned long)at >= start && (unsigned long)at < end;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, flag) != NULL;
    }
    fclose(smaps);
    return found;
}

static void expect(char *at, const char *flag, const char *what)
{
    static const char *const all[] = {"hg", "nh", "nr"};
    for (int i = 0; i < 3; i++)
        CHECK(shows(at, all[i]) == (strcmp(flag, all[i]) == 0), "%s: %s is %d, wanted %s", what,
              all[i], shows(at, all[i]), flag);
}

/* From where a huge page begins, or from its second page on: then its ends are frozen in small
 * pages or not at all. */
static int is_odd;

static char *map(const struct kind *k, size_t size)
{
    char *at = OK(mmap(NULL, size + 2 * PART, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | k->flags, -1, 0));
    char *begin = (char *)(((uintptr_t)at + PART - 1) / PART * PART) + is_odd * OD_PAGE;
    if (begin > at)
        OK(munmap(at, begin - at));
    OK(munmap(begin + size, at + 2 * PART - begin));
    at = begin;
    if (k->advice)
        OK(madvise(at, size, k->advice));
    return at;
}

static void nothing(void *unused) { (void)unused; }

static char *frozen(const struct kind *k)
{
    char *at = map(k, SIZE);
    od_fill(at, SIZE, 5);
    od_run_child(nothing, NULL);
    return at;
}

static void give_up(char *at, const struct kind *k, const char *who)
{
    OK(madvise(at + PART, PART, MADV_DONTNEED));
    od_verify_zero(at + PART, PART, who);
    expect(at + PART, k->shown, who);
}

struct place {
    char *at;
    const struct kind *kind;
};

static void child(void *argument)
{
    struct place *p = argument;
    give_up(p->at, p->kind, "given up by a child");
    od_verify(p->at, PART, 5, "child");
}

static void whole(const struct kind *k)
{
    struct place place = {frozen(k), k};
    od_run_child(child, &place);
    give_up(place.at, k, "given up");
    od_thaw();
    expect(place.at, k->shown, "thawed");
    expect(place.at + SIZE - 1, k->shown, "thawed");
    od_verify(place.at, PART, 5, "thawed");
    OK(munmap(place.at, SIZE));
}

/* In place, and where something lies behind. */
static void grows(const struct kind *k, int blocked)
{
    char *at = frozen(k), *wall = MAP_FAILED;
    if (blocked)
        wall = mmap(at + SIZE, OD_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *now = OK(mremap(at, SIZE, SIZE + PART, MREMAP_MAYMOVE));
    expect(now + SIZE + PART - 1, k->shown, "grown");
    od_verify(now, SIZE, 5, "grown");
    od_verify_zero(now + SIZE, PART, "grown");
    OK(madvise(now + PART, PART, MADV_DONTNEED));
    expect(now + PART, k->shown, "grown and given up");
    od_thaw();
    expect(now, k->shown, "grown and thawed");
    OK(munmap(now, SIZE + PART));
    if (wall != MAP_FAILED)
        munmap(wall, OD_PAGE);
}

/* Of a part, while it is frozen; the last word counts, and new memory at old addresses has none. */
static void later(void)
{
    char *at = frozen(&kinds[0]);
    OK(madvise(at + PART, PART, MADV_NOHUGEPAGE));
    OK(madvise(at, SIZE / 8, MADV_DONTNEED));
    expect(at, "hg", "before the part");
    give_up(at, &kinds[1], "the part");
    od_thaw();
    expect(at + PART, "nh", "the part thawed");
    expect(at + 2 * PART, "hg", "behind the part thawed");
    od_verify_at(at + 2 * PART, PART, 5, 2 * PART / 8, "behind the part");
    od_run_child(nothing, NULL);
    OK(mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    od_fill(at, SIZE, 6);
    od_run_child(nothing, NULL);
    OK(madvise(at, PART, MADV_DONTNEED));
    expect(at, "--", "new memory");
    OK(munmap(at, SIZE));
}

int main(void)
{
    char *try = od_map(PART);
    int has_thp = madvise(try, PART, MADV_HUGEPAGE) == 0;
    OK(munmap(try, PART));
    for (int i = 0; i < 4; i++) {
        if (kinds[i].advice && !has_thp)
            continue;
        for (is_odd = 0; is_odd < 2; is_odd++) {
            whole(&kinds[i]);
            grows(&kinds[i], 0);
            grows(&kinds[i], 1);
        }
        is_odd = 0;
    }
    if (has_thp)
        later();
    return od_done();
}
