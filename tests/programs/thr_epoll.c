// odtest: expect=froze timeout=60 mem=64
/*
 * A thread takes events all the time, into memory that is about to be frozen or is: most of the
 * time the kernel is about to write there, with its queue locked. Whoever holds the thread then
 * must not wait for the queue.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { ROUNDS = 200, EVENTS = 8 };
static const size_t BYTES = 8 * OD_MB;
static void *region;
static atomic_int over;
static atomic_long taken;
static int queue, always;

static void *take_events(void *unused)
{
    struct epoll_event *all = od_map(4 * OD_MB);
    for (size_t i = 0; !over; i = (i + OD_PAGE) % (4 * OD_MB)) {
        struct epoll_event *some = (struct epoll_event *)((char *)all + i);
        int n = epoll_wait(queue, some, EVENTS, -1);
        CHECK(n == 1 && some->data.fd == always, "epoll_wait: %d, %s", n, strerror(errno));
        taken++;
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    region = region_new(BYTES, 30);
    queue = OK(epoll_create1(EPOLL_CLOEXEC));
    always = OK(eventfd(1, EFD_CLOEXEC));
    struct epoll_event wanted = { .events = EPOLLIN, .data.fd = always };
    OK(epoll_ctl(queue, EPOLL_CTL_ADD, always, &wanted));
    CHECK(pthread_create(&thread, NULL, take_events, NULL) == 0, "pthread_create");
    for (size_t round = 0; round < ROUNDS; round++) {
        region_touch(region, BYTES, 30, round);
        od_refreeze();
        if (round % 10 == 0)
            region_look(region, BYTES, 30, "beside events");
    }
    over = 1;
    pthread_join(thread, NULL);
    CHECK(taken > 0, "no event was taken");
    region_check(region, BYTES, 30, 1, "at the end");
    return od_done();
}
