// odtest: expect=froze user=any timeout=60 mem=100
/*
 * Threads that leave a wait for children of any kind without returning from it: cancelled, or by
 * longjmp from a handler. And the main thread, which ends in one. Memory is frozen at later forks
 * all the same, and a wait that goes on keeps its children apart from everybody else's.
 */
#include "proc_region.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>

enum { WAYS = 4 };
static const size_t BYTES = 16 * OD_MB;
static sigjmp_buf out;
static atomic_int waiting, left;

static void wait_long(int way)
{
    int status;
    siginfo_t info;
    waiting = 1;
    switch (way) {
    case 0: waitpid(-1, &status, __WALL); break;
    case 1: wait4(-1, &status, __WALL, NULL); break;
    case 2: waitid(P_ALL, 0, &info, WEXITED | __WALL); break;
    default: wait3(&status, __WALL, NULL);
    }
    FAIL("way %d: the wait returned", way);
}

static void *cancelled(void *way)
{
    wait_long((int)(intptr_t)way);
    return NULL;
}

static void jump(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

static void *jumped(void *way)
{
    if (sigsetjmp(out, 1) == 0)
        wait_long((int)(intptr_t)way);
    left = 1;
    return NULL; /* a thread that ends is in no call any more */
}

static void until(atomic_int *what)
{
    while (!*what)
        usleep(1000);
    usleep(20000); /* in the call itself, mostly */
}

/* The inode that the map names at an address; 0 for memory that is not frozen. */
static unsigned long long inode_at(const void *address)
{
    char line[512];
    unsigned long from, to;
    unsigned long long inode = 0, found = 0;
    FILE *map = fopen("/proc/self/maps", "re");
    CHECK(map, "no map");
    while (fgets(line, sizeof line, map))
        if (sscanf(line, "%lx-%lx %*s %*s %*s %llu", &from, &to, &inode) == 3 &&
            from <= (unsigned long)address && (unsigned long)address < to)
            found = inode;
    fclose(map);
    return found;
}

/* New memory is frozen at a fork where that is meant to be. */
static void freezes(const char *when)
{
    const char *mode = getenv("ODTEST_MODE");
    void *region = region_new(BYTES, 5);
    region_look(region, BYTES, 5, when);
    region_look(region, BYTES, 5, when);
    if (mode && (!strcmp(mode, "huge") || !strcmp(mode, "small")))
        /* Its ends may lie outside of whole huge pages. */
        CHECK(inode_at((char *)region + BYTES / 2) != 0, "%s: new memory is not frozen", when);
    munmap(region, BYTES);
}

int main(void)
{
    pid_t child = OK(fork());
    if (child == 0) {
        pause();
        _exit(0);
    }
    signal(SIGUSR1, jump);
    freezes("at first");
    for (int way = 0; way < WAYS; way++) {
        pthread_t thread;
        waiting = left = 0;
        CHECK(pthread_create(&thread, NULL, cancelled, (void *)(intptr_t)way) == 0, "no thread");
        until(&waiting);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        freezes("after a cancelled wait");
        waiting = 0;
        CHECK(pthread_create(&thread, NULL, jumped, (void *)(intptr_t)way) == 0, "no thread");
        until(&waiting);
        pthread_kill(thread, SIGUSR1);
        until(&left);
        pthread_join(thread, NULL);
        freezes("after a jump out of a wait");
    }
    if (sigsetjmp(out, 1) == 0) {
        alarm(1);
        signal(SIGALRM, jump);
        wait_long(0);
    }
    freezes("after this thread jumped out of a wait");
    kill(child, SIGKILL);
    CHECK(waitpid(-1, NULL, __WALL) == child, "the child was not found");
    return od_done();
}
