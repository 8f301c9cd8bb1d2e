// odtest: expect=froze timeout=90 mem=64
/*
 * A thread receives so many bytes or none (MSG_WAITALL), from a process that never stops sending:
 * most of the time it is somewhere in a call that has got a part. Others read much from a device
 * that has no end, and ask for random bytes. While they are held again and again each answer is
 * what was asked for.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/socket.h>

enum { WANTED = 300000, RANDOM = 20000 };
static const size_t BYTES = 8 * OD_MB;
static int pair[2];
static atomic_int done;
static atomic_long received, drawn;
static unsigned char text[251];

static void *receive(void *unused)
{
    static unsigned char got[WANTED];
    size_t at = 0;
    (void)unused;
    for (int i = 0; !done; i++) {
        struct iovec parts[2] = { { got, 1000 }, { got + 1000, WANTED - 1000 } };
        struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };
        ssize_t n =
            i % 2 ? recvmsg(pair[0], &m, MSG_WAITALL) : recv(pair[0], got, WANTED, MSG_WAITALL);
        CHECK(n == WANTED, "call %d answered %zd of %d: %s", i, n, WANTED, strerror(errno));
        for (size_t in = 0; in < WANTED; in++, at++)
            CHECK(got[in] == at % sizeof text, "byte %zu of call %d is %d", in, i, got[in]);
        received++;
    }
    return NULL;
}

static void *draw(void *unused)
{
    static unsigned char bytes[RANDOM];
    int fd = OK(open("/dev/urandom", O_RDONLY | O_CLOEXEC));
    (void)unused;
    for (int i = 0; !done; i++) {
        ssize_t n = i % 2 ? getrandom(bytes, RANDOM, 0) : read(fd, bytes, RANDOM);
        CHECK(n == RANDOM, "call %d answered %zd of %d: %s", i, n, RANDOM, strerror(errno));
        drawn++;
    }
    close(fd);
    return NULL;
}

static void send_all(void *unused)
{
    (void)unused;
    close(pair[0]);
    for (size_t at = 0;;) {
        ssize_t n = send(pair[1], text + at, sizeof text - at, MSG_NOSIGNAL);
        if (n < 0)
            return;
        at = (at + (size_t)n) % sizeof text;
    }
}

int main(void)
{
    pthread_t thread[2];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)i;
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    pid_t sender = od_spawn(send_all, NULL);
    close(pair[1]);
    void *region = region_new(BYTES, 30);
    CHECK(pthread_create(&thread[0], NULL, receive, NULL) == 0, "pthread_create");
    CHECK(pthread_create(&thread[1], NULL, draw, NULL) == 0, "pthread_create");
    double since = seconds();
    for (size_t round = 0; round < 300 && (round < 40 || seconds() - since < 20); round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "while bytes come");
        usleep(1000);
    }
    done = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    close(pair[0]);
    kill(sender, SIGKILL);
    while (waitpid(sender, NULL, 0) < 0 && errno == EINTR) {
    }
    CHECK(received > 0 && drawn > 0, "nothing came");
    return od_done();
}
