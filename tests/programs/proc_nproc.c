// odtest: expect=any mem=64 serial=yes
/*
 * RLIMIT_NPROC and fork's failure: fork fails with EAGAIN exactly when it fails on stock, says so
 * in errno, and works again as soon as a child has gone; errno survives a fork that succeeds. As
 * root the program first becomes a user nobody else uses, since the limit does not bind root. A
 * freeze or a fold must not need a process of its own that the limit forbids: with the limit one
 * above what is in use, fork has to succeed.
 */
#include "proc_region.h"
#include <grp.h>

static const size_t BYTES = 16 * OD_MB;
static const uid_t LONELY = 64123;
static void *region;

static void set_limit(rlim_t soft)
{
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NPROC, &limit));
    limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
    OK(setrlimit(RLIMIT_NPROC, &limit));
}

/* With no room: refused. With room for one: a child, but no second while it lives. */
static void at_the_edge(const char *what)
{
    for (size_t round = 0; round < 4; round++) {
        region_touch(region, BYTES, 14, round);
        set_limit(1); /* this process alone */
        errno = 0;
        CHECK(fork() == -1 && errno == EAGAIN, "%s: fork above the limit: errno %d", what, errno);
        set_limit(2);
        int gate[2];
        OK(pipe(gate));
        region_touch(region, BYTES, 14, round + 1);
        errno = 77;
        pid_t pid = fork();
        CHECK(pid >= 0 && errno == 77, "%s: fork below the limit gave %d, errno %d", what, pid,
              errno);
        if (pid == 0) {
            char c;
            close(gate[1]);
            region_check(region, BYTES, 14, REGION_STEP, what);
            _exit(read(gate[0], &c, 1) != 0);
        }
        close(gate[0]);
        CHECK(fork() == -1 && errno == EAGAIN, "%s: a second child above the limit: errno %d", what,
              errno);
        close(gate[1]);
        od_join(pid);
        if (round == 1)
            od_refreeze();
        region_check(region, BYTES, 14, REGION_STEP, what);
    }
    set_limit(RLIM_INFINITY);
}

int main(void)
{
    if (getuid() == 0) {
        OK(setgroups(0, NULL));
        OK(setresgid(LONELY, LONELY, LONELY));
        OK(setresuid(LONELY, LONELY, LONELY));
    }
    region = region_new(BYTES, 14);
    set_limit(2);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (pid < 0) {
        printf("SKIP: this user has other processes, so the limit cannot be set to one above\n");
        return OD_SKIP_STATUS;
    }
    od_join(pid);
    at_the_edge("early");
    region_grow_old(region, BYTES, 14);
    at_the_edge("late");
    return od_done();
}
