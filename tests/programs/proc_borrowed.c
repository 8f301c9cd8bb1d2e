// odtest: expect=frozen mem=64
/*
 * Whose memory is it? Before anything was frozen: a vfork child that forks works in its parent's
 * memory and must leave the parent's runtime alone; children of _Fork, of a raw fork and of clone
 * have memory of their own and freeze it for themselves. Then the parent freezes, and all that
 * again.
 */
#include "proc_region.h"
#include <sched.h>

static const size_t BYTES = 16 * OD_MB;
static void *region;

/* How often the runtime of this process froze; 0 under stock fork. */
static uint64_t freezes(void)
{
    static uint64_t words[64];
    size_t (*stats)(void *, size_t) =
        (size_t(*)(void *, size_t))dlsym(RTLD_DEFAULT, "odfork_stats");
    if (!stats)
        return 0;
    CHECK(stats(words, sizeof words) >= 16, "odfork_stats says too little");
    return words[1]; /* after two numbers of 32 bits */
}

static void borrowed(const char *when)
{
    uint64_t before = freezes();
    for (int i = 0; i < 3; i++) {
        pid_t child = vfork();
        if (child == 0) {
            pid_t pid = fork();
            if (pid == 0) {
                region_check(region, BYTES, 31, REGION_STEP, when);
                _exit(0);
            }
            int status = -1;
            _exit(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1);
        }
        CHECK(child > 0, "%s: vfork: %s", when, strerror(errno));
        od_join(child);
    }
    CHECK(freezes() == before, "%s: a vfork child froze its parent's memory", when);
}

/* In a child that has memory of its own: a freeze is its own, too. */
static void own(const char *what)
{
    int (*freeze)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "odfork_freeze");
    /* Pages that are the parent's too are not frozen: they would exist twice. */
    for (size_t round = 0; round < 4; round++)
        region_touch(region, BYTES, 31, round);
    CHECK(!freeze || freeze() == 0, "%s: the child cannot freeze: %s", what, strerror(errno));
    region_look(region, BYTES, 31, what);
    region_check(region, BYTES, 31, 1, what);
    _exit(0);
}

static int own_by_clone(void *what)
{
    own(what);
    return 0;
}

static void owned(const char *when)
{
    static char stack[65536] __attribute__((aligned(64)));
    pid_t pid = _Fork();
    if (pid == 0)
        own("_Fork");
    od_join(pid);
    pid = (pid_t)syscall(OD_FORK_CALL);
    if (pid == 0)
        own("raw fork");
    od_join(pid);
    pid = clone(own_by_clone, stack + sizeof stack, SIGCHLD, (void *)"clone");
    CHECK(pid > 0, "%s: clone: %s", when, strerror(errno));
    od_join(pid);
}

int main(void)
{
    region = region_new(BYTES, 31);
    borrowed("early");
    owned("early");
    borrowed("after raw forks");
    region_grow_old(region, BYTES, 31);
    borrowed("late");
    owned("late");
    region_check(region, BYTES, 31, 1, "at the end");
    return od_done();
}
