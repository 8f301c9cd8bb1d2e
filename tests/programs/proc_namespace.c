// odtest: modes=stock,huge,small,auto expect=froze auto=any needs=root mem=100
/*
 * A process that asks for a new pid namespace: its next child is the first process of it, whatever
 * the runtime does at that fork. Then the same again in there, where parent and child both have
 * number 1, by raw calls. All of them freeze and fork, with a /proc of their own and with
 * another's.
 */
#include "proc_region.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>

static const size_t BYTES = 16 * OD_MB;
static void *region;

/* Freezes, folds and forks. */
static void live(size_t seed)
{
    for (int i = 0; i < 3; i++) {
        region_touch(region, BYTES, 7, seed + (size_t)i);
        region_look(region, BYTES, 7, "in a namespace");
    }
    od_refreeze();
    void *own = region_new(BYTES, seed);
    region_look(own, BYTES, seed, "new in a namespace");
    CHECK(munmap(own, BYTES) == 0, "munmap");
}

static pid_t raw_unshare_and_fork(void)
{
    CHECK(syscall(SYS_unshare, CLONE_NEWPID) == 0, "unshare by number: %s", strerror(errno));
    return fork();
}

/* A /proc of the namespace, without which nothing is frozen there. Not for the last: it sees its
 * parent's, where its own number is the parent's. */
static void mount_proc(int depth)
{
    if (depth == 3)
        return;
    CHECK(unshare(CLONE_NEWNS) == 0, "unshare: %s", strerror(errno));
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "mount: %s", strerror(errno));
    CHECK(mount("proc", "/proc", "proc", 0, NULL) == 0, "mount of /proc: %s", strerror(errno));
}

static void deeper(int depth)
{
    live(40 + (size_t)depth);
    if (depth == 3)
        return;
    pid_t pid;
    if (depth == 2) {
        pid = raw_unshare_and_fork();
    } else if (depth == 1) {
        pid = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_NEWPID, 0, 0, 0, 0);
    } else {
        errno = 77;
        CHECK(unshare(CLONE_NEWPID) == 0 && errno == 77, "unshare: %s", strerror(errno));
        /* What is to be zero now must be, without a helper. */
        CHECK(madvise(region, OD_PAGE, MADV_DONTNEED) == 0, "madvise: %s", strerror(errno));
        CHECK(*(volatile char *)region == 0, "not given up");
        od_fill(region, OD_PAGE, 7);
        pid = fork();
    }
    CHECK(pid >= 0, "depth %d: fork: %s", depth, strerror(errno));
    if (pid == 0) {
        CHECK(getpid() == 1, "depth %d: number %d", depth, getpid());
        mount_proc(depth + 1);
        deeper(depth + 1);
        _exit(0);
    }
    od_join(pid);
}

static void hold_namespace(void *made)
{
    OK(unshare(CLONE_NEWPID));
    pid_t first = fork();
    CHECK(first >= 0, "fork: %s", strerror(errno));
    if (first == 0)
        OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
    else
        od_gate_open(made, 1);
    pause();
}

/* Its next children belong to a namespace that is there: what is given up before is gone, in
 * memory of the program's own data too. */
static void join_namespace(void *holder)
{
    static char data[8 * 1024 * 1024] __attribute__((aligned(4096)));
    char path[64];
    memset(data, 'b', sizeof data);
    od_freeze();
    region_look(region, BYTES, 7, "before it joins");
    snprintf(path, sizeof path, "/proc/%d/ns/pid_for_children", (int)(intptr_t)holder);
    int name = OK(open(path, O_RDONLY | O_CLOEXEC));
    errno = 77;
    CHECK(setns(name, 0) == 0 && errno == 77, "setns: %s", strerror(errno));
    close(name);
    OK(madvise(data + OD_PAGE, 2 * OD_PAGE, MADV_DONTNEED));
    od_verify_zero(data + OD_PAGE, 2 * OD_PAGE, "given up");
    OK(madvise((char *)region + OD_PAGE, 2 * OD_PAGE, MADV_WIPEONFORK));
    pid_t pid = fork();
    CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        od_verify_zero((char *)region + OD_PAGE, 2 * OD_PAGE, "wiped");
        _exit(getpid() == 1);
    }
    od_join(pid);
}

static void join(void)
{
    struct od_gate made;
    od_gate_make(&made);
    pid_t holder = od_spawn(hold_namespace, &made);
    od_gate_wait(&made);
    od_run_child(join_namespace, (void *)(intptr_t)holder);
    OK(kill(holder, SIGKILL));
    OK(waitpid(holder, NULL, 0));
    od_gate_drop(&made);
}

int main(void)
{
    region = region_new(BYTES, 7);
    region_look(region, BYTES, 7, "at first");
    errno = 77;
    CHECK(unshare(-1) == -1 && errno == EINVAL, "a call that is refused: %s", strerror(errno));
    live(5);
    join();
    deeper(0);
    return od_done();
}
