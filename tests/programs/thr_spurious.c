// odtest: expect=froze timeout=90 mem=64
/*
 * A thread waits for a signal by epoll_wait with a limit of time, and is woken again and again by
 * another one that it does not wait for. It sleeps on in the same call, while it is held again and
 * again: the limit counts from the beginning of the call, and is reached.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

static const size_t BYTES = 8 * OD_MB;
static const int LIMIT_MS = 1500;
static atomic_int back;
static int set;

static void *wait_for_nothing(void *unused)
{
    struct epoll_event e;
    (void)unused;
    double since = seconds();
    CHECK(epoll_wait(set, &e, 1, LIMIT_MS) == 0, "epoll_wait: %s", strerror(errno));
    double took = seconds() - since;
    CHECK(took > LIMIT_MS / 1000.0 - 0.02, "it took %.3f s", took);
    back = 1;
    return NULL;
}

/* Each wakes whoever waits for some signal. */
static void *signal_itself(void *unused)
{
    sigset_t mine;
    (void)unused;
    sigemptyset(&mine);
    sigaddset(&mine, SIGRTMIN);
    while (!back) {
        CHECK(pthread_kill(pthread_self(), SIGRTMIN) == 0, "pthread_kill");
        CHECK(sigwaitinfo(&mine, NULL) == SIGRTMIN, "sigwaitinfo");
        usleep(300);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[2];
    sigset_t all, other;
    struct epoll_event wanted = { .events = EPOLLIN };
    void *region = region_new(BYTES, 30);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    sigemptyset(&other);
    sigaddset(&other, SIGUSR2);
    int signals = OK(signalfd(-1, &other, SFD_CLOEXEC));
    set = OK(epoll_create1(EPOLL_CLOEXEC));
    OK(epoll_ctl(set, EPOLL_CTL_ADD, signals, &wanted));
    CHECK(pthread_create(&thread[0], NULL, wait_for_nothing, NULL) == 0, "pthread_create");
    CHECK(pthread_create(&thread[1], NULL, signal_itself, NULL) == 0, "pthread_create");
    double since = seconds();
    for (size_t round = 0; !back; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "while one waits");
        CHECK(seconds() - since < 60, "the limit is not reached after %zu forks", round);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    close(set), close(signals);
    return od_done();
}
