// odtest: expect=froze timeout=90 mem=64
/*
 * A handler ends a wait that is being held: no wake-up is lost. Threads wait in epoll_pwait, ppoll,
 * pselect and sigsuspend, which let a signal in only while they wait. Another process sends it to
 * one after the other, and goes on when that one has come back with EINTR; meanwhile the main
 * thread forks and refreezes. A wait begun again after its handler has run would never come back.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum { WAYS = 4, SIGNALS = 400 };
static const size_t BYTES = 8 * OD_MB;
static void *region;
static struct shared {
    atomic_int tid[WAYS], came_back[WAYS], sent, done;
} *shared;
static _Thread_local volatile sig_atomic_t handled;

static void on_signal(int sig)
{
    (void)sig;
    handled++;
}

static void *wait_again(void *arg)
{
    long way = (long)arg;
    struct epoll_event e;
    sigset_t open;
    int set = OK(epoll_create1(EPOLL_CLOEXEC)), n = 0;
    sigfillset(&open);
    sigdelset(&open, SIGHUP);
    shared->tid[way] = (int)syscall(SYS_gettid);
    while (!shared->done) {
        int before = handled;
        switch (way) {
        case 0: n = epoll_pwait(set, &e, 1, -1, &open); break;
        case 1: n = ppoll(NULL, 0, NULL, &open); break;
        case 2: n = pselect(0, NULL, NULL, NULL, NULL, &open); break;
        default: n = sigsuspend(&open);
        }
        CHECK(n == -1 && errno == EINTR, "way %ld answered %d: %s", way, n, strerror(errno));
        CHECK(handled == before + 1, "way %ld: EINTR after %d handlers", way, handled - before);
        shared->came_back[way]++;
    }
    close(set);
    return NULL;
}

static void sender(void *unused)
{
    (void)unused;
    pid_t pid = getppid();
    for (int i = 0; i < SIGNALS; i++) {
        int way = i % WAYS, before = shared->came_back[way];
        double since = seconds();
        OK(syscall(SYS_tgkill, pid, shared->tid[way], SIGHUP));
        while (shared->came_back[way] == before) {
            usleep(100);
            CHECK(seconds() - since < 60, "signal %d: way %d never came back", i, way);
        }
        shared->sent++;
    }
    shared->done = 1;
    for (int way = 0; way < WAYS; way++)
        OK(syscall(SYS_tgkill, pid, shared->tid[way], SIGHUP));
}

int main(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    pthread_t thread[WAYS];
    sigset_t hup;
    shared = OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    region = region_new(BYTES, 30);
    sigaction(SIGHUP, &act, NULL);
    sigemptyset(&hup);
    sigaddset(&hup, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &hup, NULL);
    for (long way = 0; way < WAYS; way++)
        CHECK(pthread_create(&thread[way], NULL, wait_again, (void *)way) == 0, "pthread_create");
    for (int way = 0; way < WAYS; way++)
        while (!shared->tid[way])
            usleep(100);
    pid_t pid = od_spawn(sender, NULL);
    for (size_t round = 0; !shared->done || round < 20; round++) {
        int status;
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "while signals come");
        CHECK(waitpid(pid, &status, WNOHANG) != pid || status == 0, "the sender failed");
    }
    for (int way = 0; way < WAYS; way++)
        pthread_join(thread[way], NULL);
    while (waitpid(pid, NULL, 0) > 0) {
    }
    return od_done();
}
