// odtest: expect=froze timeout=90 mem=64 user=any live=no slices=no
/*
 * Many open files that cannot hold memory: what a freeze asks about each of them is counted. A pipe
 * of packets is not read past the page cache, whatever its flag says.
 */
#include "proc_region.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

enum { FEW = 8, MANY = 808 };
static const size_t BYTES = 8 * OD_MB;

/* Calls of one freeze of new memory. */
static long calls_of_freeze(void)
{
    void *region = region_new(BYTES, 9);
    long before = od_number("calls");
    od_freeze();
    long after = od_number("calls");
    region_look(region, BYTES, 9, "after it");
    munmap(region, BYTES);
    return after - before;
}

static int open_one(int kind)
{
    int ends[2];
    switch (kind % 5) {
    case 0:
        return OK(eventfd(0, EFD_CLOEXEC));
    case 1:
        return OK(epoll_create1(EPOLL_CLOEXEC));
    case 2:
        return OK(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    case 3:
        return OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    default:
        OK(pipe2(ends, O_CLOEXEC | O_DIRECT));
        close(ends[1]);
        return ends[0];
    }
}

static void *idle(void *gate)
{
    od_gate_wait(gate);
    return NULL;
}

static void count_calls(const char *when, long most)
{
    static int open_now[MANY];
    long few = 0, many = 0;
    for (int i = 0; i < MANY; i++) {
        open_now[i] = open_one(i);
        if (i + 1 == FEW)
            few = calls_of_freeze();
    }
    many = calls_of_freeze();
    for (int i = 0; i < MANY; i++)
        close(open_now[i]);
    CHECK((many - few) * 10 <= (MANY - FEW) * most, "%s: %ld calls with %d files, %ld with %d",
          when, few, FEW, many, MANY);
}

int main(void)
{
    struct rlimit limit = { 4096, 4096 };
    pthread_t thread;
    struct od_gate gate;
    setrlimit(RLIMIT_NOFILE, &limit);
    od_gate_make(&gate);
    calls_of_freeze();
    count_calls("alone", 12);
    CHECK(pthread_create(&thread, NULL, idle, &gate) == 0, "no thread");
    count_calls("beside a thread", 23);
    od_gate_open(&gate, 1);
    pthread_join(thread, NULL);
    od_gate_drop(&gate);
    return od_done();
}
