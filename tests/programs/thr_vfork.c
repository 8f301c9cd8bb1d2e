// odtest: expect=froze timeout=90 mem=64
/*
 * Threads start children by vfork, which use this memory while their parents sleep and cannot be
 * stopped. Meanwhile the main thread forks: what those children write counts, nobody stays stopped,
 * nobody waits for ever.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS = 2 };
static const size_t BYTES = 8 * OD_MB;
static atomic_int done;
static uint64_t *counters[THREADS];

/* Returns when the child has ended; what it wrote is this process's memory. */
static pid_t start_child(volatile uint64_t *mine, uint64_t n, const struct timespec *pause)
{
    pid_t pid = vfork();
    if (pid == 0) {
        for (size_t at = 0; at < 64; at++)
            mine[at * 1024] = n;
        nanosleep(pause, NULL);
        for (size_t at = 0; at < 64; at++)
            mine[at * 1024 + 1] = n;
        _exit(7);
    }
    return pid;
}

static void *start_children(void *arg)
{
    volatile uint64_t *mine = counters[(long)arg];
    uint32_t seed = (uint32_t)(long)arg + 1;
    for (uint64_t n = 1; !done; n++) {
        struct timespec pause = { 0, (long)(od_random(&seed) % 4000) * 1000 };
        int status;
        pid_t pid = start_child(mine, n, &pause);
        CHECK(pid > 0, "vfork: %s", strerror(errno));
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7,
              "status %#x", status);
        for (size_t at = 0; at < 64; at++)
            CHECK(mine[at * 1024] == n && mine[at * 1024 + 1] == n, "round %llu: %llu and %llu",
                  (unsigned long long)n, (unsigned long long)mine[at * 1024],
                  (unsigned long long)mine[at * 1024 + 1]);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[THREADS];
    void *region = region_new(BYTES, 30);
    region_look(region, BYTES, 30, "alone");
    for (long i = 0; i < THREADS; i++) {
        counters[i] = od_map(BYTES);
        CHECK(pthread_create(&thread[i], NULL, start_children, (void *)i) == 0, "pthread_create");
    }
    double since = seconds();
    for (size_t round = 0; round < 40 && seconds() - since < 60; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "beside children of vfork");
        usleep(3000);
    }
    done = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    return od_done();
}
