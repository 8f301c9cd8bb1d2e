/* Thousands of small parts of frozen memory are given up: each reads zeros, what lies between keeps
 * its content, and the mappings of the process do not become many more. In the parent, in a child,
 * with a thread. */
// odtest: expect=froze user=any timeout=90 mem=800
// odtest: link=-lpthread
#include "odtest.h"
#include <pthread.h>

#define MOST 4500 /* mappings: stock has 30, and one for each part would be 8,000 more */

static char *world;
static size_t size = 64 * OD_MB;

/* Every other `step` bytes. */
static void drop(size_t bytes)
{
    for (size_t at = 0; at < size; at += 2 * bytes)
        OK(madvise(world + at, bytes, MADV_DONTNEED));
    for (size_t at = 0; at < size; at += 2 * bytes) {
        od_verify_zero(world + at, bytes, "given up");
        od_verify_at(world + at + bytes, bytes, 1, (at + bytes) / 8, "between");
    }
    int now = od_mappings();
    CHECK(now < MOST, "%d mappings after parts of %zu KB", now, bytes / 1024);
}

static void dropper(void *bytes) { drop(*(size_t *)bytes); }

static pthread_mutex_t stop = PTHREAD_MUTEX_INITIALIZER;

static void *idle(void *argument)
{
    pthread_mutex_lock(&stop);
    pthread_mutex_unlock(&stop);
    return argument;
}

int main(void)
{
    static const size_t parts[] = {4096, 16384, 65536, 16384};
    world = od_map(size);
    for (int i = 0; i < 4; i++) {
        size_t bytes = parts[i];
        pthread_t thread;
        od_fill(world, size, 1);
        od_run_child(dropper, &bytes); /* eager: frozen here */
        od_run_child(dropper, &bytes);
        pthread_mutex_lock(&stop);
        CHECK(pthread_create(&thread, NULL, idle, NULL) == 0, "pthread_create");
        drop(bytes);
        pthread_mutex_unlock(&stop);
        pthread_join(thread, NULL);
        od_fill(world, size, 1);
        od_refreeze();
        drop(bytes);
        OK(munmap(world, size));
        if (i == 2)
            size *= 4; /* thawed part by part meanwhile: what was given up stays mapped by itself */
        world = od_map(size);
    }
    return od_done();
}
