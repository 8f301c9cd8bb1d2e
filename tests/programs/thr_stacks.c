// odtest: expect=froze user=any mem=160 timeout=90
/*
 * A thread that maps, fills, checks and unmaps memory while another forks, on stacks of every kind:
 * libc's, shared memory, a private and a shared mapping of a file, a part of the region itself. Its
 * frames are shallow: what holds it still must hold it at its first write. A stack that cannot be
 * held means plain fork.
 */
#include "proc_region.h"
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

enum { FORKS = 60, KINDS = 5 };
static const size_t BYTES = 16 * OD_MB, STACK = OD_MB, SMALL = 2 * OD_MB;
static atomic_int stop, rounds;

static void *maps(void *unused)
{
    uint64_t gen = 100;
    struct timespec moment = { 0, 200000 };
    while (!stop) {
        volatile uint64_t *small = od_map(SMALL);
        for (int again = 0; again < 3; again++) {
            gen++;
            for (size_t i = 0; i < SMALL / 8; i += 512)
                small[i] = gen;
            nanosleep(&moment, NULL);
            for (size_t i = 0; i < SMALL / 8; i += 512)
                CHECK(small[i] == gen, "page %zu holds %llu, want %llu", i / 512,
                      (unsigned long long)small[i], (unsigned long long)gen);
        }
        OK(munmap((void *)small, SMALL));
        rounds++;
    }
    return unused;
}

static void *new_stack(int kind, void *region)
{
    int shared[] = {MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED | MAP_ANONYMOUS, MAP_PRIVATE,
                    MAP_SHARED};
    int file = -1;
    if (kind == 4)
        return (char *)region + BYTES - STACK;
    if (kind >= 2) {
        file = OK(memfd_create("stack", MFD_CLOEXEC));
        OK(ftruncate(file, (off_t)STACK));
    }
    void *stack = OK(mmap(NULL, STACK, PROT_READ | PROT_WRITE, shared[kind], file, 0));
    if (file >= 0)
        close(file);
    return stack;
}

static void fork_beside(int kind, void *region)
{
    pthread_attr_t attributes;
    pthread_t thread;
    stop = rounds = 0;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, new_stack(kind, region), STACK) == 0, "setstack");
    CHECK(pthread_create(&thread, &attributes, maps, NULL) == 0, "no thread on stack %d", kind);
    for (int i = 0; i < FORKS || rounds < 3; i++) {
        region_touch(region, BYTES - STACK, 13, (size_t)i);
        region_look(region, BYTES - STACK, 13, "beside the thread");
    }
    stop = 1;
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

int main(void)
{
    void *region = region_new(BYTES, 13);
    od_freeze();
    for (int kind = 0; kind < KINDS; kind++)
        fork_beside(kind, region);
    return od_done();
}
