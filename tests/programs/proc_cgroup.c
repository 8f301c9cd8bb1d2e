// odtest: modes=stock,huge,small expect=any needs=root mem=300 serial=yes
/*
 * A memory control group with room for what stock fork needs: the program inside it, 64 MB of
 * memory, children that read and write some. A freeze that holds a region twice at its peak, or
 * whose image stays beside what was dirtied, must give up in time: content right, nobody killed.
 * Ample and tight. A limit lowered below image plus rewritten pages after freezing is beyond us:
 * docs/limits.md.
 */
#include "proc_group.h"
#include "proc_region.h"

static const size_t BYTES = 64 * OD_MB;

static void work(const char *what, void *region)
{
    volatile uint64_t *word = region;
    for (size_t round = 0; round < 8; round++) {
        region_touch(region, BYTES, 17, round);
        pid_t pid = fork();
        CHECK(pid >= 0, "%s: fork: %s", what, strerror(errno));
        if (pid == 0) {
            region_check(region, BYTES, 17, REGION_STEP, what);
            for (size_t i = 1; i < 4 * OD_MB / 8; i += 512)
                word[i] = ~word[i];
            region_look(region, BYTES, 17, what);
            _exit(0);
        }
        od_join(pid);
        if (round == 3)
            od_refreeze();
        if (round == 5)
            od_thaw();
        if (round == 6)
            od_freeze();
    }
    region_check(region, BYTES, 17, 1, what);
}

static void inside(const struct group *g, const char *what, size_t limit)
{
    CHECK(group_set_limit(g, limit) == 0, "cannot set the limit to %zu", limit);
    group_run(g, what);
    printf("%s: fine\n", what);
}

int main(int argc, char **argv)
{
    struct group g;
    if (argc == 4) {
        work(argv[1], region_new(BYTES, 17));
        return 0;
    }
    group_make(&g);
    inside(&g, "ample, 300 MB", 300 * OD_MB);
    inside(&g, "tight, 140 MB", 140 * OD_MB);
    inside(&g, "tight, 100 MB", 100 * OD_MB);
    inside(&g, "tighter, 84 MB", 84 * OD_MB);
    group_drop(g.dir);
    return od_done();
}
