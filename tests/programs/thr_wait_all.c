// odtest: expect=any mem=100 timeout=60
/*
 * Threads that wait for children of any kind, in every way there is, beside a thread that forks
 * with much memory: they are told of the program's children and of nobody else. A child without an
 * exit signal is waited for by its kind.
 */
#include "proc_region.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { WAYS = 6, FORKS = 20 };
static const size_t BYTES = 16 * OD_MB;
static atomic_int forked, reaped, known[FORKS];

/* Any child, in one of the ways; -1 if there is none now. */
static pid_t any_child(int way, int kind)
{
    int status;
    siginfo_t info = { 0 };
    switch (way) {
    case 0:
        return waitpid(-1, &status, kind);
    case 1:
        return wait3(&status, kind, NULL);
    case 2:
        return wait4(-1, &status, kind, NULL);
    case 3:
        return waitid(P_ALL, 0, &info, WEXITED | kind) < 0 ? -1 : info.si_pid;
    case 4:
        return (pid_t)syscall(SYS_wait4, -1, &status, kind, NULL);
    default:
        return syscall(SYS_waitid, P_ALL, 0, &info, WEXITED | kind, NULL) < 0 ? -1 : info.si_pid;
    }
}

static int is_known(pid_t pid)
{
    for (int tries = 0; tries < 2000; tries++) {
        for (int i = 0; i < forked; i++)
            if (known[i] == pid)
                return 1;
        usleep(1000); /* fork() may not have returned yet */
    }
    return 0;
}

static void *wait_for_all(void *way)
{
    while (reaped < FORKS) {
        pid_t pid = any_child((int)(intptr_t)way, __WALL);
        if (pid > 0) {
            CHECK(is_known(pid), "way %d: child %d is a stranger", (int)(intptr_t)way, (int)pid);
            reaped++;
        } else {
            usleep(200);
        }
    }
    return NULL;
}

static void fork_beside(int way, unsigned char *region)
{
    pthread_t thread;
    forked = reaped = 0;
    CHECK(pthread_create(&thread, NULL, wait_for_all, (void *)(intptr_t)way) == 0, "no thread");
    for (int i = 0; i < FORKS; i++) {
        region_touch(region, BYTES, 3, (size_t)i);
        pid_t pid = OK(fork());
        if (pid == 0) {
            usleep(i % 2 * 10000);
            _exit(0);
        }
        known[i] = pid;
        forked++;
    }
    pthread_join(thread, NULL);
    CHECK(waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD, "way %d left a child", way);
}

static int in_clone(void *unused)
{
    (void)unused;
    return 0;
}

int main(void)
{
    static char stack[65536];
    unsigned char *region = region_new(BYTES, 3);
    for (int way = 0; way < WAYS; way++) {
        fork_beside(way, region);
        pid_t pid = OK(clone(in_clone, stack + sizeof stack, 0, NULL));
        CHECK(any_child(way, __WCLONE) == pid, "way %d did not find the child without a signal",
              way);
        region_look(region, BYTES, 3, "after it");
    }
    return od_done();
}
