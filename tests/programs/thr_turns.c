/* A thread locks and unlocks pages of frozen memory without a pause, each of which has to be made
 * anonymous first. Forks beside it have their turn: they do not wait until it has come to an end.
 */
// odtest: expect=froze user=any auto=any timeout=120
// odtest: link=-lpthread
#include "odtest.h"
#include <pthread.h>

enum { FORKS = 20, MOST = 15 /* pages locked within a fork, on average */ };

#define SIZE (16 * OD_MB)

static char *world;
static volatile size_t locked, enough;

static void *lock_pages(void *argument)
{
    for (size_t at = 0; at < SIZE && !enough; at += OD_PAGE) {
        OK(mlock(world + at, OD_PAGE));
        OK(munlock(world + at, OD_PAGE));
        locked++;
    }
    return argument;
}

static void check(void *generation)
{
    od_verify(world, SIZE, *(uint64_t *)generation, "child");
}

static size_t fork_beside(uint64_t generation)
{
    size_t within = 0;
    pthread_t thread;
    od_fill(world, SIZE, generation);
    od_run_child(check, &generation); /* eager: frozen here */
    locked = enough = 0;
    CHECK(pthread_create(&thread, NULL, lock_pages, NULL) == 0, "pthread_create");
    while (locked == 0)
        ;
    for (int i = 0; i < FORKS; i++) {
        size_t before = locked;
        pid_t pid = OK(fork());
        if (pid == 0) {
            check(&generation);
            _exit(0);
        }
        within += locked - before;
        od_join(pid);
    }
    enough = 1;
    pthread_join(thread, NULL);
    od_verify(world, SIZE, generation, "parent");
    return within;
}

int main(void)
{
    world = od_map(SIZE);
    for (uint64_t generation = 1; generation < 3; generation++) {
        size_t within = fork_beside(generation);
        /* Stock locks a page in less time than it takes to look. So does a process whose forks
         * leave the freezing to its waits. */
        if (getenv("LD_PRELOAD") && !getenv("ODFORK_MAX_PAUSE"))
            CHECK(within < FORKS * MOST, "%zu pages were locked within %d forks", within, FORKS);
    }
    return od_done();
}
