/* Guard regions (MADV_GUARD_INSTALL, Linux 6.13) are page-table entries without a mapping of their
 * own. A guard made before a freeze, after one or in a child faults as on stock, in every later
 * child too, until it is removed; the bytes beside it stay. */
// odtest: timeout=60
#include "odtest.h"

#define SIZE (8 * OD_MB)
#define INSTALL 102
#define REMOVE 103

enum { EMPTY, FIRST, MIDDLE, LAST, PLACES };

static const struct {
    size_t from, size;
} place[PLACES] = {
    [FIRST] = {0, OD_PAGE},
    [MIDDLE] = {3 * OD_MB + 5 * OD_PAGE, 3 * OD_PAGE},
    [LAST] = {SIZE - 64 * OD_PAGE, 64 * OD_PAGE},
};

struct area {
    const char *name;
    char *at;
    uint64_t gen;
    int guarded; /* bits of places whose guard is there */
    int given_up; /* bits of places that read zeros without it */
};

/* Not beside another mapping: where they are neighbours, guards of one are guards of both. */
static char *map_alone(void)
{
    char *at = od_map(SIZE + 2 * OD_PAGE);
    OK(mprotect(at, OD_PAGE, PROT_NONE));
    OK(mprotect(at + SIZE + OD_PAGE, OD_PAGE, PROT_NONE));
    return at + OD_PAGE;
}

static void verify(const struct area *a, const char *when)
{
    char what[120];
    size_t from = 0;
    for (int i = FIRST; i < PLACES; i++) {
        char *at = a->at + place[i].from;
        snprintf(what, sizeof what, "%s, %s, place %d", a->name, when, i);
        if ((a->guarded | a->given_up) >> i & 1) {
            od_verify_at(a->at + from, place[i].from - from, a->gen, from / 8, what);
            from = place[i].from + place[i].size;
        }
        for (size_t page = 0; page < place[i].size && a->guarded >> i & 1; page += OD_PAGE)
            CHECK(!od_is_readable(at + page), "%s: page %zu can be read", what, page / OD_PAGE);
        if ((a->given_up & ~a->guarded) >> i & 1)
            od_verify_zero(at, place[i].size, what);
    }
    od_verify_at(a->at + from, SIZE - from, a->gen, from / 8, a->name);
}

static void guard(struct area *a, int i, int advice)
{
    OK(madvise(a->at + place[i].from, place[i].size, advice));
    a->given_up |= 1 << i;
    a->guarded = advice == INSTALL ? a->guarded | 1 << i : a->guarded & ~(1 << i);
}

static void nothing(void *argument) { (void)argument; }

static void look(void *argument)
{
    verify(argument, "in a child");
    od_run_child(nothing, NULL);
    verify(argument, "in a child that forked");
}

static void changes(void *argument)
{
    struct area *a = argument;
    verify(a, "in a child that changes");
    guard(a, FIRST, a->guarded >> FIRST & 1 ? REMOVE : INSTALL);
    guard(a, MIDDLE, a->guarded >> MIDDLE & 1 ? REMOVE : INSTALL);
    verify(a, "in a child that changed");
    od_refreeze();
    verify(a, "in a child that changed and refroze");
    od_run_child(look, a);
}

static void rounds(struct area *a)
{
    od_run_child(look, a);
    od_run_child(changes, a);
    verify(a, "after a child's changes");
    /* Rewriting a byte makes it dirty, refreezing moves the page into the file. */
    for (size_t at = OD_MB; at < 2 * OD_MB; at += OD_PAGE)
        *(volatile char *)(a->at + at) = a->at[at];
    od_refreeze();
    verify(a, "refrozen");
    od_run_child(look, a);
    od_thaw();
    verify(a, "thawed");
    od_freeze();
    verify(a, "frozen again");
    od_run_child(look, a);
}

static void dontneed_keeps_guards(struct area *a)
{
    OK(madvise(a->at + place[LAST].from, place[LAST].size, MADV_DONTNEED));
    a->given_up |= 1 << LAST;
    verify(a, "after DONTNEED");
}

int main(void)
{
    od_is_readable("x"); /* opens its pipe before the listing at the end */
    struct area all[] = {{"guarded, then frozen", map_alone(), 1, 0, 0},
                         {"frozen, then guarded", map_alone(), 2, 0, 0},
                         {"never guarded here", map_alone(), 3, 0, 0}};
    for (int i = 0; i < 3; i++)
        od_fill(all[i].at, SIZE, all[i].gen);
    if (madvise(all[0].at, OD_PAGE, INSTALL) != 0)
        od_skip("MADV_GUARD_INSTALL: %s (it came with Linux 6.13)", strerror(errno));
    OK(madvise(all[0].at, OD_PAGE, REMOVE));
    for (int i = FIRST; i < PLACES; i++)
        guard(&all[0], i, INSTALL);
    od_freeze();
    for (int i = 0; i < 3; i++)
        rounds(&all[i]);
    for (int i = FIRST; i < PLACES; i++)
        guard(&all[1], i, INSTALL);
    rounds(&all[1]);
    rounds(&all[2]);
    dontneed_keeps_guards(&all[0]);
    guard(&all[0], MIDDLE, REMOVE);
    guard(&all[1], FIRST, REMOVE);
    for (int i = 0; i < 3; i++)
        rounds(&all[i]);
    return od_done();
}
