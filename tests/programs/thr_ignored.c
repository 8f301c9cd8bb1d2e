// odtest: expect=froze timeout=60 mem=64
/*
 * Signals that the program ignores come all the time: for the process, from another one, and for a
 * thread, from its children. They wake nobody. So threads that sleep in calls that a wakened thread
 * would leave with EINTR stay in them, and a long write is not cut short, however often threads
 * are held meanwhile, by the main thread too, to which signals for the process are told first.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>

enum { ROUNDS = 80, LONG = 1 << 20 };
static const size_t BYTES = 8 * OD_MB;
static void *region;
static atomic_int over, *sent;
static int nothing, semaphores, stream[2];

static void *sleep_in_epoll(void *unused)
{
    struct epoll_event e;
    int n = epoll_wait(nothing, &e, 1, -1);
    CHECK(n == 1 && over, "epoll_wait: %d, %s", n, strerror(errno));
    return unused;
}

static void *sleep_in_semop(void *unused)
{
    struct sembuf wish = { 0, -1, 0 };
    int n = semop(semaphores, &wish, 1);
    CHECK(n == 0 && over, "semop: %d, %s", n, strerror(errno));
    return unused;
}

static void *write_much(void *unused)
{
    static char much[LONG];
    while (!over) {
        ssize_t n = write(stream[0], much, LONG);
        CHECK(n == LONG, "write: %zd of %d, %s", n, LONG, strerror(errno));
    }
    close(stream[0]);
    return unused;
}

static void *read_all(void *unused)
{
    static char some[5000];
    while (read(stream[1], some, sizeof some) > 0)
        usleep(20);
    return unused;
}

/* Their ends are told to this thread first. */
static void *have_children(void *unused)
{
    while (!over) {
        pid_t pid = (pid_t)syscall(OD_FORK_CALL);
        CHECK(pid >= 0, "fork: %s", strerror(errno));
        if (pid == 0)
            _exit(0);
        od_join(pid);
    }
    return unused;
}

static void *hold_often(void *forks)
{
    for (size_t round = 0; round < ROUNDS; round++) {
        region_touch(region, BYTES, 30, round);
        if (forks)
            region_look(region, BYTES, 30, "beside signals");
        od_refreeze();
        usleep(1000);
    }
    return forks;
}

/* A process that sends signals, after so many microseconds each. */
static pid_t send_signals(struct od_gate *gate, useconds_t pause)
{
    *sent = 0;
    pid_t me = getpid(), storm = OK(fork());
    if (storm == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (gate)
            od_gate_wait(gate);
        for (; getppid() == me && kill(me, SIGWINCH) == 0; ++*sent)
            if (pause)
                usleep(pause);
        _exit(0);
    }
    return storm;
}

static void end(pid_t pid)
{
    OK(kill(pid, SIGKILL));
    CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
}

int main(void)
{
    static void *(*const BODY[])(void *) = { sleep_in_epoll, sleep_in_epoll, sleep_in_semop,
                                             write_much, read_all, have_children, hold_often };
    enum { COUNT = sizeof BODY / sizeof *BODY };
    pthread_t thread[COUNT];
    struct sembuf gift = { 0, 1, 0 };
    struct epoll_event wanted = { .events = EPOLLIN };
    struct od_gate gate;
    int wake[2];
    sent = mmap(NULL, sizeof *sent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(sent != MAP_FAILED, "mmap: %s", strerror(errno));
    od_gate_make(&gate);
    pid_t storm = send_signals(&gate, 0);
    region = region_new(BYTES, 30);
    nothing = OK(epoll_create1(EPOLL_CLOEXEC));
    OK(pipe(wake));
    OK(epoll_ctl(nothing, EPOLL_CTL_ADD, wake[0], &wanted));
    semaphores = OK(semget(IPC_PRIVATE, 1, 0600));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
    for (int i = 0; i < COUNT; i++)
        CHECK(pthread_create(&thread[i], NULL, BODY[i], region) == 0, "pthread_create");
    /* Not while the main thread makes others: it blocks signals then, and others are woken. */
    od_gate_open(&gate, 1);
    pthread_join(thread[COUNT - 1], NULL);
    end(storm);
    storm = send_signals(NULL, 300);
    hold_often(NULL);
    end(storm);
    CHECK(*sent > 0, "no signal was sent");
    over = 1;
    OK(write(wake[1], "!", 1));
    OK(semop(semaphores, &gift, 1));
    for (int i = 0; i < COUNT - 1; i++)
        pthread_join(thread[i], NULL);
    region_check(region, BYTES, 30, 1, "at the end");
    OK(semctl(semaphores, 0, IPC_RMID));
    od_gate_drop(&gate);
    munmap(sent, sizeof *sent);
    close(nothing), close(wake[0]), close(wake[1]), close(stream[1]);
    return od_done();
}
