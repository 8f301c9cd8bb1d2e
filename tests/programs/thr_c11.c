// odtest: expect=froze user=any mem=100 timeout=90
/*
 * Threads that come and go by every way libc has while another thread forks: pthread_create,
 * thrd_create, timers that notify by a thread. Each join returns, C11 locks and conditions work
 * between them, and what they write into memory that is being frozen is there.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <threads.h>
#include <time.h>

enum { FORKS = 400, MAKERS = 2, AT_ONCE = 4 };
static const size_t BYTES = 16 * OD_MB;
static unsigned char *region;
static atomic_int stop, made, fired, mixed;
static atomic_long written;

/* Its own slot: what it writes must be there when it is joined. */
static int short_life(void *slot)
{
    *(volatile long *)slot += 1;
    return 7;
}

static void *short_life_posix(void *slot) { return (void *)(intptr_t)short_life(slot); }

static void join_all(long *slots, int posix)
{
    pthread_t threads[AT_ONCE];
    thrd_t c11[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++)
        if (posix)
            CHECK(pthread_create(&threads[i], NULL, short_life_posix, &slots[i * 512]) == 0,
                  "no thread");
        else
            CHECK(thrd_create(&c11[i], short_life, &slots[i * 512]) == thrd_success,
                  "no C11 thread");
    for (int i = 0; i < AT_ONCE; i++) {
        int result = 0;
        void *value = NULL;
        if (posix)
            CHECK(pthread_join(threads[i], &value) == 0 && value == (void *)7, "pthread_join");
        else
            CHECK(thrd_join(c11[i], &result) == thrd_success && result == 7, "thrd_join");
    }
}

static int makes_threads(void *number)
{
    long *slots = (long *)(region + BYTES / 2) + (intptr_t)number * AT_ONCE * 512;
    long rounds = 0;
    for (; !stop; rounds++) {
        join_all(slots, mixed & (int)rounds);
        for (int i = 0; i < AT_ONCE; i++)
            CHECK(slots[i * 512] == rounds + 1, "thread %d of round %ld: %ld", i, rounds,
                  slots[i * 512]);
        made++;
    }
    written += rounds;
    return 0;
}

static mtx_t lock;
static cnd_t changed;
static int turn;

/* Passes a turn to and fro. */
static int plays(void *mine)
{
    mtx_lock(&lock);
    for (int round = 0; round < 200; round++) {
        while (turn != (int)(intptr_t)mine)
            cnd_wait(&changed, &lock);
        turn = !turn;
        cnd_signal(&changed);
    }
    mtx_unlock(&lock);
    return 0;
}

static void on_timer(union sigval value)
{
    (void)value;
    fired++;
}

static timer_t start_timer(void)
{
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_THREAD };
    event.sigev_notify_function = on_timer;
    struct itimerspec often = { { 0, 1000000 }, { 0, 1000000 } };
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    OK(timer_settime(timer, 0, &often, NULL));
    return timer;
}

static void fork_often(int forks)
{
    for (int i = 0; i < forks; i++) {
        region_touch(region, BYTES / 2, 11, (size_t)i);
        region_look(region, BYTES / 2, 11, "beside threads");
    }
}

static void beside_players(void)
{
    thrd_t players[2];
    CHECK(mtx_init(&lock, mtx_plain) == thrd_success && cnd_init(&changed) == thrd_success,
          "no lock");
    for (int i = 0; i < 2; i++)
        CHECK(thrd_create(&players[i], plays, (void *)(intptr_t)i) == thrd_success, "no player");
    fork_often(20);
    for (int i = 0; i < 2; i++)
        CHECK(thrd_join(players[i], NULL) == thrd_success, "a player is lost");
}

/* C11 threads only, or POSIX threads in turn with them. */
static void beside_makers(int both)
{
    thrd_t makers[MAKERS];
    memset(region + BYTES / 2, 0, BYTES / 2);
    stop = made = 0;
    written = 0;
    mixed = both;
    for (int i = 0; i < MAKERS; i++)
        CHECK(thrd_create(&makers[i], makes_threads, (void *)(intptr_t)i) == thrd_success,
              "no maker");
    fork_often(FORKS);
    stop = 1;
    for (int i = 0; i < MAKERS; i++)
        CHECK(thrd_join(makers[i], NULL) == thrd_success, "a maker is lost");
    CHECK(written == made && made > 0, "%ld rounds of %d", (long)written, (int)made);
}

int main(void)
{
    region = od_map(BYTES);
    od_fill(region, BYTES / 2, 11);
    od_freeze();
    beside_makers(0);
    beside_makers(1);
    beside_players();
    timer_t timer = start_timer();
    fork_often(30);
    while (fired < 20)
        usleep(1000);
    timer_delete(timer);
    region_look(region, BYTES / 2, 11, "at the end");
    fflush(stdout);
    _exit(0); /* libc's own thread for timers stays */
}
