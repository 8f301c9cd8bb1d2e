// odtest: expect=froze user=any timeout=60 mem=64
/*
 * A process with threads that asked not to be dumped cannot be traced by an ordinary user, its own
 * helper task included: its forks go on, plain or not, with memory as it was.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>

static const size_t BYTES = 8 * OD_MB;
static atomic_int done;

static void *count(void *arg)
{
    volatile uint64_t *mine = arg;
    for (uint64_t n = 1; !done; n++) {
        for (size_t at = 0; at < 64; at++) {
            CHECK(mine[at * 1024] == n - 1, "a count is %llu", (unsigned long long)mine[at * 1024]);
            mine[at * 1024] = n;
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    void *region = region_new(BYTES, 30);
    OK(prctl(PR_SET_DUMPABLE, 0));
    CHECK(pthread_create(&thread, NULL, count, od_map(BYTES)) == 0, "pthread_create");
    for (size_t round = 0; round < 20; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "kept secret");
    }
    CHECK(prctl(PR_GET_DUMPABLE) == 0, "it may be dumped again");
    done = 1;
    pthread_join(thread, NULL);
    return od_done();
}
