// odtest: expect=froze timeout=60 mem=64
/*
 * Threads in every call of signal(7)'s list of those that are never begun again after a handler,
 * and in some more, are held again and again, until the calls with a limit of time have ended by
 * themselves. None of them comes back early, none with EINTR, and holding does not keep a limit
 * from being reached. Then the others get what they wait for. A handler that runs in the meantime
 * ends them as it does on stock.
 */
#include "proc_region.h"
#include <linux/futex.h>
#include <mqueue.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

static const size_t BYTES = 8 * OD_MB;
static const long LIMIT_MS = 1500;
static void *region;
static atomic_int ready, back, released;
static int event_fd, queue = -1, semaphores = -1, notify_fd, data_pipe[2];
static mqd_t mailbox = -1;
static int word;

static struct timespec limit(void)
{
    return (struct timespec){ LIMIT_MS / 1000, LIMIT_MS % 1000 * 1000000 };
}
static struct timespec deadline(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_sec += LIMIT_MS / 1000;
    return t;
}
static int watched(int fd)
{
    struct epoll_event wanted = { .events = EPOLLIN };
    int set = OK(epoll_create1(EPOLL_CLOEXEC));
    OK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted));
    return set;
}

/* ---- with a limit: 1 if it ended as it must ---- */

static int epoll_wait_timed(void)
{
    struct epoll_event e;
    int set = OK(epoll_create1(EPOLL_CLOEXEC)), n = epoll_wait(set, &e, 1, (int)LIMIT_MS);
    close(set);
    return n == 0;
}
static int epoll_pwait_timed(void)
{
    struct epoll_event e;
    sigset_t all;
    sigfillset(&all);
    int set = OK(epoll_create1(EPOLL_CLOEXEC)), n = epoll_pwait(set, &e, 1, (int)LIMIT_MS, &all);
    close(set);
    return n == 0;
}
static int epoll_pwait2_timed(void)
{
    struct epoll_event e;
    struct timespec t = limit(), same = t;
    int set = OK(epoll_create1(EPOLL_CLOEXEC));
    long n = syscall(441, set, &e, 1, &t, NULL, (size_t)8);
    close(set);
    return n == 0 && t.tv_sec == same.tv_sec && t.tv_nsec == same.tv_nsec;
}
static int sigtimedwait_timed(void)
{
    sigset_t set;
    struct timespec t = limit();
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &t) == -1 && errno == EAGAIN;
}
static int semtimedop_timed(void)
{
    struct sembuf wish = { 1, -1, 0 };
    struct timespec t = limit();
    return semtimedop(semaphores, &wish, 1, &t) == -1 && errno == EAGAIN;
}
static int poll_timed(void) { return poll(NULL, 0, (int)LIMIT_MS) == 0; }
static int ppoll_timed(void)
{
    struct timespec t = limit();
    return ppoll(NULL, 0, &t, NULL) == 0;
}
static int select_timed(void)
{
    struct timeval t = { LIMIT_MS / 1000, LIMIT_MS % 1000 * 1000 };
    return select(0, NULL, NULL, NULL, &t) == 0 && t.tv_sec == 0 && t.tv_usec == 0;
}
static int pselect_timed(void)
{
    struct timespec t = limit();
    return pselect(0, NULL, NULL, NULL, &t, NULL) == 0;
}
/* In memory that cannot be written, where the kernel gives up what it would have gone on with. */
static const struct timespec FIXED = { 1, 500000000 };
static const struct timeval FIXED_TOO = { 1, 500000 };
static int fixed_ppoll_timed(void)
{
    return syscall(SYS_ppoll, NULL, 0L, &FIXED, NULL, (size_t)8) == 0;
}
static int fixed_pselect_timed(void)
{
    return syscall(SYS_pselect6, 0L, NULL, NULL, NULL, &FIXED, NULL) == 0;
}
static int fixed_select_timed(void)
{
#ifdef SYS_select
    return syscall(SYS_select, 0L, NULL, NULL, NULL, &FIXED_TOO) == 0;
#else
    struct timeval t = FIXED_TOO;
    return select(0, NULL, NULL, NULL, &t) == 0;
#endif
}
static int nanosleep_timed(void)
{
    struct timespec t = limit();
    return nanosleep(&t, NULL) == 0;
}
/* What is left is told to whom is interrupted, and nobody else. */
static int nanosleep_told(void)
{
    struct timespec t = limit(), rest = { 7, 8 };
    return nanosleep(&t, &rest) == 0 && rest.tv_sec == 7 && rest.tv_nsec == 8;
}
static int clock_nanosleep_told(void)
{
    struct timespec t = limit(), rest = { 7, 8 };
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &rest) == 0 && rest.tv_sec == 7 &&
           rest.tv_nsec == 8;
}
static int clock_nanosleep_timed(void)
{
    struct timespec t = deadline(CLOCK_REALTIME);
    t.tv_sec++;
    return clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == 0;
}
static int futex_timed(void)
{
    struct timespec t = limit();
    static int other;
    return syscall(SYS_futex, &other, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0) == -1 &&
           errno == ETIMEDOUT;
}
static int mailbox_timed(void)
{
    char text[64];
    struct timespec t = deadline(CLOCK_REALTIME);
    t.tv_sec++;
    if (mailbox == (mqd_t)-1)
        return usleep((useconds_t)LIMIT_MS * 1000) == 0; /* no message queues here */
    return mq_timedreceive(mailbox, text, sizeof text, NULL, &t) == -1 && errno == ETIMEDOUT;
}

/* ---- until they are released ---- */

static int epoll_wait_for_ever(void)
{
    struct epoll_event e;
    int set = watched(event_fd), n = epoll_wait(set, &e, 1, -1);
    close(set);
    return n == 1 && e.events == EPOLLIN;
}
static int sigwaitinfo_for_ever(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return sigwaitinfo(&set, NULL) == SIGUSR1;
}
static int semop_for_ever(void)
{
    struct sembuf wish = { 0, -1, 0 };
    return semop(semaphores, &wish, 1) == 0;
}
static int msgrcv_for_ever(void)
{
    struct { long type; char text[8]; } m = { 0, "" };
    return msgrcv(queue, &m, sizeof m.text, 3, 0) == 8;
}
static int inotify_for_ever(void)
{
    char text[512];
    return read(notify_fd, text, sizeof text) > 0;
}
static int pipe_for_ever(void)
{
    char text[8];
    return read(data_pipe[0], text, sizeof text) == 1 && *text == 'p';
}
static int futex_for_ever(void)
{
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == 0;
}
static int pause_until_handler(void) { return pause() == -1 && errno == EINTR; }
static int epoll_until_handler(void)
{
    struct epoll_event e;
    int set = OK(epoll_create1(EPOLL_CLOEXEC)), n = epoll_wait(set, &e, 1, -1);
    close(set);
    return n == -1 && errno == EINTR;
}
static int nanosleep_until_handler(void)
{
    struct timespec t = { 1000, 0 }, rest = { 7, 8 };
    return nanosleep(&t, &rest) == -1 && errno == EINTR && rest.tv_sec > 500 && rest.tv_sec < 1000;
}
static int sigsuspend_until_handler(void)
{
    sigset_t none;
    sigfillset(&none);
    sigdelset(&none, SIGHUP);
    return sigsuspend(&none) == -1 && errno == EINTR;
}
static int read_through_handler(void) /* SA_RESTART: goes on */
{
    uint64_t n;
    return read(event_fd, &n, sizeof n) == sizeof n && n == 1;
}

static const struct wait {
    const char *name;
    int (*body)(void);
    enum { TIMED, RELEASED, HANDLED } end;
} WAITS[] = {
    { "epoll_wait with limit", epoll_wait_timed, TIMED },
    { "epoll_pwait with limit", epoll_pwait_timed, TIMED },
    { "epoll_pwait2 with limit", epoll_pwait2_timed, TIMED },
    { "sigtimedwait", sigtimedwait_timed, TIMED },
    { "semtimedop", semtimedop_timed, TIMED },
    { "poll", poll_timed, TIMED },
    { "ppoll", ppoll_timed, TIMED },
    { "select", select_timed, TIMED },
    { "pselect", pselect_timed, TIMED },
    { "ppoll with a constant", fixed_ppoll_timed, TIMED },
    { "pselect6 with a constant", fixed_pselect_timed, TIMED },
    { "select with a constant", fixed_select_timed, TIMED },
    { "nanosleep", nanosleep_timed, TIMED },
    { "clock_nanosleep", clock_nanosleep_timed, TIMED },
    { "nanosleep with a place for its rest", nanosleep_told, TIMED },
    { "clock_nanosleep with a place for its rest", clock_nanosleep_told, TIMED },
    { "futex with limit", futex_timed, TIMED },
    { "mq_timedreceive", mailbox_timed, TIMED },
    { "epoll_wait", epoll_wait_for_ever, RELEASED },
    { "sigwaitinfo", sigwaitinfo_for_ever, RELEASED },
    { "semop", semop_for_ever, RELEASED },
    { "msgrcv", msgrcv_for_ever, RELEASED },
    { "read of inotify", inotify_for_ever, RELEASED },
    { "read of a pipe", pipe_for_ever, RELEASED },
    { "futex", futex_for_ever, RELEASED },
    { "pause", pause_until_handler, HANDLED },
    { "epoll_wait until a handler", epoll_until_handler, HANDLED },
    { "sigsuspend", sigsuspend_until_handler, HANDLED },
    { "nanosleep until a handler", nanosleep_until_handler, HANDLED },
    { "read through a handler", read_through_handler, HANDLED },
};
enum { COUNT = sizeof WAITS / sizeof *WAITS };

static void *wait_there(void *arg)
{
    const struct wait *w = arg;
    sigset_t hup;
    sigemptyset(&hup);
    sigaddset(&hup, SIGHUP);
    if (w->end == HANDLED && w->body != sigsuspend_until_handler)
        pthread_sigmask(SIG_UNBLOCK, &hup, NULL);
    ready++;
    errno = 0;
    double start = seconds();
    int right = w->body();
    double took = seconds() - start;
    CHECK(right, "%s came back wrong after %.3f s: %s", w->name, took, strerror(errno));
    if (w->end == TIMED)
        CHECK(took > (double)LIMIT_MS / 1000 - 0.02, "%s took %.3f s", w->name, took);
    else
        CHECK(released, "%s came back early, after %.3f s", w->name, took);
    back++;
    return NULL;
}

static void on_hup(int sig) { (void)sig; }

static void make_things(void)
{
    struct sigaction act = { .sa_handler = on_hup, .sa_flags = SA_RESTART };
    struct mq_attr shape = { .mq_maxmsg = 1, .mq_msgsize = 64 };
    sigset_t set;
    char name[64];
    sigaction(SIGHUP, &act, NULL);
    sigfillset(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    event_fd = OK(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
    queue = OK(msgget(IPC_PRIVATE, 0600));
    semaphores = OK(semget(IPC_PRIVATE, 2, 0600));
    notify_fd = OK(inotify_init1(IN_CLOEXEC));
    OK(inotify_add_watch(notify_fd, ".", IN_CREATE));
    OK(pipe2(data_pipe, O_CLOEXEC));
    snprintf(name, sizeof name, "/odtest-held-%d", (int)getpid());
    mailbox = mq_open(name, O_RDONLY | O_CREAT | O_CLOEXEC, 0600, &shape);
    mq_unlink(name);
}

/* Dirty pages, a fork, a hold. */
static void hold_once(size_t round)
{
    region_touch(region, BYTES, 30, round);
    region_look(region, BYTES, 30, "while threads wait");
    od_refreeze();
}

static void release(const pthread_t *thread)
{
    struct { long type; char text[8]; } m = { 3, "message" };
    struct sembuf gift = { 0, 1, 0 };
    released = 1;
    for (int i = 0; i < COUNT; i++)
        if (WAITS[i].end == HANDLED)
            CHECK(pthread_kill(thread[i], SIGHUP) == 0, "pthread_kill");
    for (int i = 0; i < COUNT; i++)
        if (WAITS[i].body == sigwaitinfo_for_ever)
            CHECK(pthread_kill(thread[i], SIGUSR1) == 0, "pthread_kill");
    /* Two for who reads one each: one is left for who only waits for them. */
    uint64_t two = 2;
    OK(write(event_fd, &two, sizeof two));
    OK(semop(semaphores, &gift, 1));
    OK(msgsnd(queue, &m, sizeof m.text, 0));
    close(OK(open("made", O_WRONLY | O_CREAT, 0600)));
    unlink("made");
    OK(write(data_pipe[1], "p", 1));
    word = 1;
    CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1,
          "nobody waits at the futex any more");
}

int main(void)
{
    pthread_t thread[COUNT];
    int timed = 0;
    region = region_new(BYTES, 30);
    make_things();
    for (int i = 0; i < COUNT; i++) {
        CHECK(pthread_create(&thread[i], NULL, wait_there, (void *)&WAITS[i]) == 0,
              "pthread_create");
        timed += WAITS[i].end == TIMED;
    }
    while (ready < COUNT)
        usleep(1000);
    usleep(100000);
    size_t round = 0;
    double since = seconds();
    /* A limit that began anew with every hold would never be reached. */
    while (back < timed || round < 30) {
        hold_once(round++);
        usleep(5000);
        CHECK(seconds() - since < 200, "only %d of %d limits were reached, after %zu holds",
              (int)back, timed, round);
    }
    release(thread);
    for (int i = 0; i < COUNT; i++)
        pthread_join(thread[i], NULL);
    region_check(region, BYTES, 30, 1, "at the end");
    OK(msgctl(queue, IPC_RMID, NULL));
    OK(semctl(semaphores, 0, IPC_RMID));
    if (mailbox != (mqd_t)-1)
        mq_close(mailbox);
    close(event_fd), close(notify_fd), close(data_pipe[0]), close(data_pipe[1]);
    return od_done();
}
