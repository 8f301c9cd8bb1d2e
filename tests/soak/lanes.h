/* Writers beside the one that forks: threads, and a handler of a timer's signal.
 *
 * Each owns a lane and writes round numbers into its pages in order. It knows what it wrote, so it
 * finds a write that was lost. A child finds the lane of one instant: some pages of a round, the
 * rest of the round before. */
#ifndef SOAK_LANES_H
#define SOAK_LANES_H

#include "model.h"
#include <pthread.h>
#include <sys/time.h>
#include <time.h>

#define LANES 4 /* the last is the handler's */
#define LANE_PAGES (3 * MB / PAGE)

struct lane {
    volatile char *memory;
    uint64_t round; /* the writer's own; it may run ahead of a child's copy */
    size_t next;
};

static struct lane lanes[LANES];

static volatile uint64_t *lane_word(const struct lane *lane, size_t page)
{
    return (volatile uint64_t *)(lane->memory + page * PAGE + page % 500 * 8);
}

static void lane_step(struct lane *lane)
{
    volatile uint64_t *word = lane_word(lane, lane->next);
    uint64_t found = *word;
    if (found != lane->round)
        wrong("lane %td: page %zu holds round %llu, its writer wrote %llu", lane - lanes,
              lane->next, (unsigned long long)found, (unsigned long long)lane->round);
    *word = lane->round + 1;
    if (++lane->next == LANE_PAGES) {
        lane->next = 0;
        lane->round++;
    }
}

static void *lane_thread(void *argument)
{
    static const struct timespec pause = {0, 300 * 1000};
    for (;;) {
        for (int i = 0; i < 24; i++)
            lane_step(argument);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void lane_signal(int signal)
{
    int before = errno;
    (void)signal;
    if (lanes[LANES - 1].memory)
        for (int i = 0; i < 8; i++)
            lane_step(&lanes[LANES - 1]);
    errno = before;
}

static void verify_lane(int i, const char *when)
{
    uint64_t first = *lane_word(&lanes[i], 0), before = first;
    for (size_t page = 1; page < LANE_PAGES; page++) {
        uint64_t now = *lane_word(&lanes[i], page);
        if (now > before || now + 1 < first)
            wrong("%s: lane %d: page %zu holds round %llu behind %llu, page 0 %llu", when, i,
                  page, (unsigned long long)now, (unsigned long long)before,
                  (unsigned long long)first);
        before = now;
    }
}

static void lane_signals(int how)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGALRM);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(how, &signals, NULL);
}

/* Lanes nobody writes now: in a child all, else the handler's. */
static void verify_lanes(const char *when)
{
    lane_signals(SIG_BLOCK);
    for (int i = depth ? 0 : LANES - 1; i < LANES; i++)
        if (lanes[i].memory)
            verify_lane(i, when);
    lane_signals(SIG_UNBLOCK);
}

static void lane_make(struct lane *lane)
{
    void *memory = mmap(NULL, LANE_PAGES * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED)
        lane->memory = memory;
}

static void lanes_start(int threads, int timer)
{
    lane_signals(SIG_BLOCK); /* in the threads: the handler's lane has one writer */
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        lane_make(&lanes[i]);
        if (lanes[i].memory && pthread_create(&thread, NULL, lane_thread, &lanes[i]) != 0)
            wrong("pthread_create");
    }
    lane_signals(SIG_UNBLOCK);
    if (!timer)
        return;
    lane_make(&lanes[LANES - 1]);
    struct itimerval often = {{0, 7000}, {0, 7000}};
    setitimer(ITIMER_REAL, &often, NULL);
}

#endif
