// odtest: expect=froze timeout=60 mem=64
/*
 * A thread waits in a send, half of which is moved, while others would have it held. Then the
 * connection is reset. The send answers what was moved, the next one is told of the reset, and only
 * after that SIGPIPE may come.
 */
#include "proc_region.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

enum { CASES = 4, MUCH = 16 << 20 };
static const size_t BYTES = 8 * OD_MB;
static volatile sig_atomic_t pipes;
static pid_t sender;

static void on_pipe(int sig)
{
    (void)sig;
    pipes++;
}

static int connected(int *peer)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof at;
    int door = OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int fd = OK(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    OK(bind(door, (struct sockaddr *)&at, sizeof at));
    OK(listen(door, 1));
    OK(getsockname(door, (struct sockaddr *)&at, &length));
    OK(connect(fd, (struct sockaddr *)&at, sizeof at));
    *peer = OK(accept4(door, NULL, NULL, SOCK_CLOEXEC));
    close(door);
    return fd;
}

static void *send_much(void *arg)
{
    static char much[MUCH];
    int fd = *(int *)arg;
    __atomic_store_n(&sender, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    ssize_t first = send(fd, much, MUCH, 0);
    CHECK(first > 0 && first < MUCH && pipes == 0, "send: %zd, %s", first, strerror(errno));
    ssize_t next = send(fd, much, 1, 0);
    CHECK(next == -1 && errno == ECONNRESET && pipes == 0, "after it: %zd, %s, %d SIGPIPE", next,
          strerror(errno), (int)pipes);
    next = send(fd, much, 1, 0);
    CHECK(next == -1 && errno == EPIPE && pipes == 1, "at the end: %zd, %s, %d SIGPIPE", next,
          strerror(errno), (int)pipes);
    pipes = 0;
    return NULL;
}

/* It sleeps where signals wake it, look after look. */
static void wait_until_it_sleeps(void)
{
    char name[64], text[64];
    for (int seen = 0; seen < 20; usleep(1000)) {
        pid_t tid = __atomic_load_n(&sender, __ATOMIC_SEQ_CST);
        snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)tid);
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        text[n > 0 ? n : 0] = 0;
        close(fd);
        seen = strstr(text, ") S ") ? seen + 1 : 0;
    }
}

int main(void)
{
    struct sigaction action = { .sa_handler = on_pipe, .sa_flags = SA_RESTART };
    void *region = region_new(BYTES, 30);
    OK(sigaction(SIGPIPE, &action, NULL));
    region_grow_old(region, BYTES, 30);
    for (size_t i = 0; i < CASES; i++) {
        pthread_t thread;
        int peer, fd = connected(&peer);
        sender = 0;
        CHECK(pthread_create(&thread, NULL, send_much, &fd) == 0, "pthread_create");
        wait_until_it_sleeps();
        for (size_t round = 0; round < 3; round++) {
            region_touch(region, BYTES, 30, round);
            region_look(region, BYTES, 30, "while one sends");
            od_refreeze();
        }
        /* With bytes that nobody has read: a reset. */
        close(peer);
        pthread_join(thread, NULL);
        close(fd);
        region_look(region, BYTES, 30, "after it");
    }
    return od_done();
}
