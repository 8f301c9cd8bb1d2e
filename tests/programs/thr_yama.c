// odtest: expect=froze timeout=60 mem=64 needs=yama
/*
 * Under Yama's ptrace_scope 1 threads are held all the same. Whom the program has named as its
 * tracer may trace it before and after each fork; where it has named nobody, none of its children
 * may between forks.
 */
#include "proc_region.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

static const size_t BYTES = 8 * OD_MB;
static void *region;
static int stop[2];

static void *wait_there(void *unused)
{
    char byte;
    (void)unused;
    CHECK(read(stop[0], &byte, 1) == 1, "read: %s", strerror(errno));
    return NULL;
}

/* A child asks: 0 if it may trace its parent. */
static int child_is_refused(int named)
{
    int status;
    pid_t pid = od_fork();
    if (pid == 0) {
        raise(SIGSTOP);
        if (ptrace(PTRACE_SEIZE, getppid(), 0, 0) != 0)
            _exit(errno == EPERM ? 1 : 2);
        ptrace(PTRACE_INTERRUPT, getppid(), 0, 0);
        while (waitpid(getppid(), NULL, __WALL) < 0 && errno == EINTR) {
        }
        ptrace(PTRACE_DETACH, getppid(), 0, 0);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "the child does not stop");
    if (named)
        OK(prctl(PR_SET_PTRACER, pid, 0, 0, 0));
    for (size_t round = 0; named && round < 3; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "with a tracer named");
    }
    OK(kill(pid, SIGCONT));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) < 2, "the child ended with %#x", status);
    return WEXITSTATUS(status);
}

int main(void)
{
    pthread_t thread;
    OK(pipe2(stop, O_CLOEXEC));
    region = region_new(BYTES, 30);
    CHECK(pthread_create(&thread, NULL, wait_there, NULL) == 0, "pthread_create");
    int refused = child_is_refused(0);
    for (size_t round = 0; round < 10; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "under Yama");
    }
    CHECK(child_is_refused(0) == refused, "a child may trace its parent after a fork");
    CHECK(child_is_refused(1) == 0, "whom the program has named may not trace it");
    OK(prctl(PR_SET_PTRACER, 0, 0, 0, 0));
    CHECK(child_is_refused(0) == refused, "a child may trace its parent at the end");
    OK(write(stop[1], "!", 1));
    pthread_join(thread, NULL);
    close(stop[0]), close(stop[1]);
    return od_done();
}
