// odtest: expect=froze timeout=60 mem=64 user=any
/*
 * Blocked system calls of other threads are left alone. Some twenty threads sit in calls that wait,
 * with and without a time limit, while the main thread forks 50 times, freezes, folds and thaws.
 * Those with a limit must run their full time; the others must come back only when the main thread
 * gives them what they wait for, with the result of stock. No EINTR, no early return, no restart
 * that waits twice.
 */
#include "proc_region.h"
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static const size_t BYTES = 16 * OD_MB;
static const double LONG = 2.0;
static void *region;
static atomic_int ready;
static int released; /* set before the main thread wakes the waiters */
static int data_pipe[2], listener, pair[2], event_fd, queue = -1;
static sem_t semaphore, never;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER, no_condition = PTHREAD_COND_INITIALIZER;
static int *word; /* futex in the region: memory that is frozen under the waiter */
static struct timespec deadline(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)LONG;
    return t;
}

/* ---- waits that end by themselves; each answers whether its result is right ---- */

static int in_nanosleep(void)
{
    struct timespec t = { (time_t)LONG, 0 };
    return nanosleep(&t, NULL) == 0;
}
static int in_clock_nanosleep(void)
{
    struct timespec t = deadline();
    return clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == 0;
}
static int in_poll(void)
{
    struct pollfd p = { pair[0], POLLPRI, 0 };
    return poll(&p, 1, (int)(LONG * 1000)) == 0;
}
static int in_select(void)
{
    struct timeval t = { (time_t)LONG, 0 };
    return select(0, NULL, NULL, NULL, &t) == 0;
}
static int in_epoll(void)
{
    struct epoll_event e;
    int fd = epoll_create1(EPOLL_CLOEXEC);
    int n = epoll_wait(fd, &e, 1, (int)(LONG * 1000));
    close(fd);
    return n == 0;
}
static int in_futex_timed(void)
{
    struct timespec t = { (time_t)LONG, 0 };
    return syscall(SYS_futex, word + 64, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0) == -1 &&
           errno == ETIMEDOUT;
}
static int in_sem_timed(void)
{
    struct timespec t = deadline();
    return sem_timedwait(&never, &t) == -1 && errno == ETIMEDOUT;
}
static int in_cond_timed(void)
{
    struct timespec t = deadline();
    pthread_mutex_lock(&held);
    int error = pthread_cond_timedwait(&no_condition, &held, &t);
    pthread_mutex_unlock(&held);
    return error == ETIMEDOUT;
}
static int in_sigtimedwait(void)
{
    sigset_t all;
    struct timespec t = { (time_t)LONG, 0 };
    sigfillset(&all);
    sigdelset(&all, SIGUSR1);
    sigdelset(&all, SIGCHLD); /* of the children that look on */
    return sigtimedwait(&all, NULL, &t) == -1 && errno == EAGAIN;
}
static int in_recv_timed(void)
{
    struct timeval t = { (time_t)LONG, 0 };
    char c;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 0;
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    int right = recv(ends[0], &c, 1, 0) == -1 && errno == EAGAIN;
    close(ends[0]);
    close(ends[1]);
    return right;
}

/* ---- waits that the main thread ends ---- */

static int in_read_pipe(void)
{
    char c = 0;
    return read(data_pipe[0], &c, 1) == 1 && c == 'p';
}
static int in_read_into_region(void)
{
    /* across a page edge, the first page never written before */
    char *there = (char *)region + 5 * OD_MB + 4000;
    return read(pair[0], there, 200) == 200 && !memcmp(there, "rrrrrrrr", 8) && there[199] == 'r';
}
static int in_accept(void)
{
    int fd = accept(listener, NULL, NULL);
    close(fd);
    return fd >= 0;
}
static int in_futex(void)
{
    return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == 0;
}
static int in_sem(void) { return sem_wait(&semaphore) == 0; }
static int in_cond(void)
{
    pthread_mutex_lock(&mutex);
    /* spurious return allowed by POSIX: none seen on stock */
    int error = pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    return error == 0;
}
static int in_sigwaitinfo(void)
{
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return sigwaitinfo(&set, &info) == SIGUSR1 && info.si_value.sival_int == 4711;
}
static int in_eventfd(void)
{
    uint64_t n = 0;
    return read(event_fd, &n, sizeof n) == sizeof n && n == 9;
}
static int in_msgrcv(void)
{
    struct { long type; char text[8]; } m = { 0, "" };
    return msgrcv(queue, &m, sizeof m.text, 3, 0) == 8 && m.type == 3;
}
static int in_ppoll_all(void)
{
    struct pollfd p = { event_fd + 0, POLLERR, 0 };
    sigset_t none;
    struct timespec t = { (time_t)LONG, 0 };
    sigfillset(&none);
    return ppoll(&p, 1, &t, &none) == 0;
}

static const struct wait {
    const char *name;
    int (*body)(void);
    int timed;
} WAITS[] = {
    {"nanosleep", in_nanosleep, 1},
    {"clock_nanosleep", in_clock_nanosleep, 1},
    {"poll", in_poll, 1},
    {"select", in_select, 1},
    {"epoll_wait", in_epoll, 1},
    {"futex with limit", in_futex_timed, 1},
    {"sem_timedwait", in_sem_timed, 1},
    {"pthread_cond_timedwait", in_cond_timed, 1},
    {"sigtimedwait", in_sigtimedwait, 1},
    {"recv with limit", in_recv_timed, 1},
    {"ppoll", in_ppoll_all, 1},
    {"read of a pipe", in_read_pipe, 0},
    {"read into the region", in_read_into_region, 0},
    {"accept", in_accept, 0},
    {"futex", in_futex, 0},
    {"sem_wait", in_sem, 0},
    {"pthread_cond_wait", in_cond, 0},
    {"sigwaitinfo", in_sigwaitinfo, 0},
    {"eventfd", in_eventfd, 0},
    {"msgrcv", in_msgrcv, 0},
};
enum { COUNT = sizeof WAITS / sizeof *WAITS };

static void *wait_there(void *arg)
{
    const struct wait *w = arg;
    ready++;
    errno = 0;
    double start = seconds();
    int right = w->body();
    double took = seconds() - start;
    CHECK(right, "%s came back wrong after %.3f s: %s", w->name, took, strerror(errno));
    if (w->timed)
        CHECK(took > LONG - 0.02 && took < LONG + 60, "%s took %.3f s of %.0f", w->name, took,
              LONG);
    else
        CHECK(__atomic_load_n(&released, __ATOMIC_SEQ_CST), "%s came back early, after %.3f s",
              w->name, took);
    return NULL;
}

static void make_things(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sigset_t set;
    sigfillset(&set); /* so that signals go to those who wait for them */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    OK(pipe2(data_pipe, O_CLOEXEC));
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    listener = OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    OK(bind(listener, (struct sockaddr *)&address, sizeof address));
    OK(listen(listener, 4));
    event_fd = OK(eventfd(0, EFD_CLOEXEC));
    queue = OK(msgget(IPC_PRIVATE, 0600));
    sem_init(&semaphore, 0, 0);
    sem_init(&never, 0, 0);
    word = (int *)((char *)region + 9 * OD_MB + 2048);
    word[0] = word[64] = 0;
}

static void release(const pthread_t *thread)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    char rs[200];
    struct { long type; char text[8]; } m = { 3, "message" };
    uint64_t nine = 9;
    memset(rs, 'r', sizeof rs);
    __atomic_store_n(&released, 1, __ATOMIC_SEQ_CST);
    OK(write(data_pipe[1], "p", 1));
    OK(write(pair[1], rs, sizeof rs));
    OK(getsockname(listener, (struct sockaddr *)&address, &length));
    int fd = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(connect(fd, (struct sockaddr *)&address, length));
    close(fd);
    *word = 1;
    CHECK(syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1,
          "nobody waits at the futex any more");
    sem_post(&semaphore);
    pthread_mutex_lock(&mutex);
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < COUNT; i++)
        if (WAITS[i].body == in_sigwaitinfo)
            CHECK(pthread_sigqueue(thread[i], SIGUSR1, (union sigval){.sival_int = 4711}) == 0,
                  "pthread_sigqueue");
    OK(write(event_fd, &nine, sizeof nine));
    OK(msgsnd(queue, &m, sizeof m.text, 0));
}

int main(void)
{
    pthread_t thread[COUNT];
    region = region_new(BYTES, 30);
    make_things();
    for (int i = 0; i < COUNT; i++)
        CHECK(pthread_create(&thread[i], NULL, wait_there, (void *)&WAITS[i]) == 0,
              "pthread_create");
    while (ready < COUNT)
        usleep(1000);
    usleep(50000);
    for (size_t i = 0; i < 50; i++) {
        ((volatile char *)region)[12 * OD_MB + i * OD_PAGE]++;
        pid_t pid = fork();
        CHECK(pid >= 0, "fork: %s", strerror(errno));
        if (pid == 0) {
            region_check(region, 4 * OD_MB, 30, REGION_STEP, "while threads wait");
            _exit(0);
        }
        od_join(pid);
        if (i % 10 == 4)
            od_refreeze();
        if (i == 30)
            od_thaw();
        if (i == 35)
            od_freeze();
    }
    release(thread);
    for (int i = 0; i < COUNT; i++)
        pthread_join(thread[i], NULL);
    OK(msgctl(queue, IPC_RMID, NULL));
    region_check(region, 5 * OD_MB, 30, 1, "at the end");
    close(data_pipe[0]), close(data_pipe[1]), close(pair[0]), close(pair[1]), close(listener),
        close(event_fd);
    return od_done();
}
