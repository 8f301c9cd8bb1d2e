// odtest: expect=fold timeout=60 mem=64 user=any
/*
 * Signals: mask, dispositions, alternate stack and pending signals are the same before and after
 * every fork with a freeze or fold; queued real-time signals all arrive, in order, with their
 * values, also those sent while the main thread forks, to the process and to one thread; children
 * start with an empty pending set. A handler on the alternate stack works when that stack lies in
 * frozen memory.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>

static const size_t BYTES = 16 * OD_MB;
static void *region;
static volatile int next_value;
static volatile sig_atomic_t out_of_order, off_stack;
static char *alternate;

static void on_real_time(int sig, siginfo_t *info, void *context)
{
    char here;
    (void)sig, (void)context;
    if (info->si_value.sival_int != next_value)
        out_of_order = 1;
    next_value = info->si_value.sival_int + 1;
    if (&here < alternate || &here >= alternate + 65536)
        off_stack = 1;
    ((volatile char *)region)[(size_t)next_value % 1000 * OD_PAGE + 100]++;
    ((volatile char *)region)[(size_t)next_value % 1000 * OD_PAGE + 100]--;
}

struct picture {
    sigset_t mask, pending;
    stack_t stack;
    struct { void *handler; int flags; } action[64];
};

static void take(struct picture *p)
{
    memset(p, 0, sizeof *p);
    sigprocmask(SIG_SETMASK, NULL, &p->mask);
    sigpending(&p->pending);
    sigaltstack(NULL, &p->stack);
    for (int sig = 1; sig < 65; sig++) {
        struct sigaction now;
        if (sigaction(sig, NULL, &now) == 0) {
            p->action[sig - 1].handler = (void *)now.sa_handler;
            p->action[sig - 1].flags = now.sa_flags;
        }
    }
}

static void same(const struct picture *before, int child, const char *when)
{
    struct picture now;
    take(&now);
    for (int sig = 1; sig < 65; sig++) {
        CHECK(sigismember(&before->mask, sig) == sigismember(&now.mask, sig),
              "%s: mask of signal %d", when, sig);
        int pending = !child && sigismember(&before->pending, sig) == 1;
        CHECK(sig == SIGCHLD || sigismember(&now.pending, sig) == pending, "%s: pending signal %d",
              when, sig);
        CHECK(before->action[sig - 1].handler == now.action[sig - 1].handler &&
                  before->action[sig - 1].flags == now.action[sig - 1].flags,
              "%s: disposition of signal %d", when, sig);
    }
    CHECK(!memcmp(&before->stack, &now.stack, sizeof now.stack), "%s: alternate stack", when);
}

static void fork_and_compare(const char *when)
{
    struct picture before;
    take(&before);
    for (size_t i = 0; i < 8; i++) {
        region_touch(region, 15 * OD_MB, 31, i);
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (pid == 0) {
            same(&before, 1, when);
            _exit(0);
        }
        same(&before, 0, when);
        od_join(pid);
        if (i == 3)
            od_refreeze();
        if (i == 5)
            od_thaw();
        if (i == 6)
            od_freeze();
        same(&before, 0, when);
    }
}

/* Everything blocked, one of each signal pending, some real-time ones several times. */
static void with_pending(const char *when)
{
    sigset_t all, before;
    sigfillset(&all);
    OK(sigprocmask(SIG_BLOCK, &all, &before));
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && sig != SIGCHLD && sig != SIGCONT &&
            sig != SIGTSTP && sig != SIGTTIN && sig != SIGTTOU)
            OK(kill(getpid(), sig));
    for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
        for (int i = 0; i < 5; i++)
            OK(sigqueue(getpid(), sig, (union sigval){ .sival_int = sig * 100 + i }));
    fork_and_compare(when);
    struct timespec none = { 0, 0 };
    siginfo_t info;
    for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
        for (int i = 0; i < 5; i++) {
            sigset_t one;
            sigemptyset(&one);
            sigaddset(&one, sig);
            CHECK(sigtimedwait(&one, &info, &none) == sig, "%s: queued signal %d number %d is gone",
                  when, sig, i);
            CHECK(info.si_value.sival_int == sig * 100 + i, "%s: signal %d value %d, want %d", when,
                  sig, info.si_value.sival_int, sig * 100 + i);
        }
    int standard = 0;
    while (sigtimedwait(&all, &info, &none) > 0)
        standard += info.si_signo != SIGCHLD;
    CHECK(standard == 24, "%s: %d standard signals were pending, want 24", when, standard);
    OK(sigprocmask(SIG_SETMASK, &before, NULL));
}

struct sender {
    pthread_t target;
    int to_thread, count;
};

static void *send_all(void *arg)
{
    struct sender *s = arg;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < s->count; i++) {
        union sigval v = { .sival_int = i };
        int error;
        while ((error = s->to_thread ? pthread_sigqueue(s->target, SIGRTMIN + 2, v)
                        : sigqueue(getpid(), SIGRTMIN + 2, v) ? errno
                                                              : 0) == EAGAIN)
            usleep(100);
        CHECK(error == 0, "sigqueue: %s", strerror(error));
        if (i % 20 == 0)
            usleep(500);
    }
    return NULL;
}

/* A thread queues thousands of values for the main thread, which forks meanwhile. */
static void while_forking(int to_thread, const char *when)
{
    struct sender s = { pthread_self(), to_thread, 3000 };
    pthread_t thread;
    next_value = 0;
    CHECK(pthread_create(&thread, NULL, send_all, &s) == 0, "pthread_create");
    for (size_t i = 0; i < 40; i++) {
        region_touch(region, 15 * OD_MB, 31, i);
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (pid == 0)
            _exit(0);
        od_join(pid);
        if (i % 10 == 7)
            od_refreeze();
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < 60000 && next_value < s.count; i++)
        usleep(1000);
    CHECK(next_value == s.count && !out_of_order, "%s: %d of %d values arrived%s", when, next_value,
          s.count, out_of_order ? ", out of order" : "");
    CHECK(!off_stack, "%s: the handler ran on another stack", when);
}

int main(void)
{
    region = region_new(BYTES, 31);
    alternate = (char *)region + 15 * OD_MB; /* frozen like the rest */
    stack_t stack = { .ss_sp = alternate, .ss_size = 65536 };
    struct sigaction action = {.sa_sigaction = on_real_time,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    OK(sigaltstack(&stack, NULL));
    fork_and_compare("early");
    OK(sigaction(SIGRTMIN + 2, &action, NULL));
    signal(SIGHUP, SIG_IGN);
    signal(SIGHUP, SIG_DFL);
    with_pending("early");
    region_grow_old(region, 15 * OD_MB, 31);
    with_pending("late");
    while_forking(0, "to the process");
    while_forking(1, "to the thread");
    with_pending("at the end");
    region_check(region, 15 * OD_MB, 31, REGION_STEP, "at the end");
    return od_done();
}
