// odtest: expect=froze timeout=90 mem=64
/*
 * A thread receives so many bytes or none (MSG_WAITALL), from a process that never stops sending:
 * most of the time it is somewhere in a call that has got a part. Another reads much from devices
 * that have no end and writes much to one, asks for random bytes, and copies files. While they are
 * held again and again each answer is what was asked for.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { WANTED = 300000, RANDOM = 500000, PARTS = 100 };
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

static unsigned char bytes[RANDOM];
static int random_fd, zero_fd, from_fd, to_fd, filled[2];

static struct iovec *parts(void)
{
    static struct iovec all[PARTS];
    for (size_t i = 0; i < PARTS; i++)
        all[i] = (struct iovec){ bytes + i * (RANDOM / PARTS), RANDOM / PARTS };
    return all;
}
static ssize_t by_getrandom(void) { return getrandom(bytes, RANDOM, 0); }
static ssize_t by_read(void) { return read(random_fd, bytes, RANDOM); }
static ssize_t by_pread(void) { return pread(random_fd, bytes, RANDOM, 0); }
static ssize_t by_readv(void) { return readv(random_fd, parts(), PARTS); }
static ssize_t by_preadv(void) { return preadv(zero_fd, parts(), PARTS, 0); }
static ssize_t by_preadv2(void) { return preadv2(zero_fd, parts(), PARTS, -1, 0); }
static ssize_t by_write(void) { return write(random_fd, bytes, RANDOM); }
static ssize_t by_writev(void) { return writev(random_fd, parts(), PARTS); }
static ssize_t by_sendfile(void)
{
    off_t from = 0;
    OK(lseek(to_fd, 0, SEEK_SET));
    ssize_t n = sendfile(to_fd, from_fd, &from, RANDOM);
    CHECK(from == n && lseek(to_fd, 0, SEEK_CUR) == n, "sendfile: %zd, %lld", n, (long long)from);
    return n;
}
static ssize_t by_copy(void)
{
    off_t from = 0, to = 0;
    ssize_t n = copy_file_range(from_fd, &from, to_fd, &to, RANDOM, 0);
    CHECK(from == n && to == n, "copy_file_range: %zd, %lld", n, (long long)from);
    return n;
}
/* All that is in a pipe, which has two ends open. */
static ssize_t by_splice(void)
{
    loff_t to = 0;
    ssize_t in = write(filled[1], bytes, RANDOM), out = 0;
    CHECK(in == RANDOM, "write: %zd", in);
    out = splice(filled[0], NULL, to_fd, &to, RANDOM, 0);
    CHECK(to == out, "splice: %zd, %lld", out, (long long)to);
    return out;
}

static const struct way {
    const char *name;
    ssize_t (*body)(void);
} WAYS[] = {
    { "getrandom", by_getrandom }, { "read", by_read },         { "pread", by_pread },
    { "readv", by_readv },         { "preadv", by_preadv },     { "preadv2", by_preadv2 },
    { "write", by_write },         { "writev", by_writev },     { "sendfile", by_sendfile },
    { "copy_file_range", by_copy }, { "splice", by_splice },
};
enum { WAYS_COUNT = sizeof WAYS / sizeof *WAYS };

static void *draw(void *unused)
{
    char names[2][16] = { "from-XXXXXX", "to-XXXXXX" };
    (void)unused;
    random_fd = OK(open("/dev/urandom", O_RDWR | O_CLOEXEC));
    zero_fd = OK(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    from_fd = OK(mkostemp(names[0], O_CLOEXEC)), unlink(names[0]);
    to_fd = OK(mkostemp(names[1], O_CLOEXEC)), unlink(names[1]);
    OK(pipe2(filled, O_CLOEXEC));
    OK(fcntl(filled[1], F_SETPIPE_SZ, 1 << 20));
    CHECK(write(from_fd, bytes, RANDOM) == RANDOM, "write");
    for (int i = 0; !done; i++) {
        const struct way *way = &WAYS[i % WAYS_COUNT];
        ssize_t n = way->body();
        CHECK(n == RANDOM, "%s, call %d answered %zd of %d: %s", way->name, i, n, RANDOM,
              strerror(errno));
        drawn++;
    }
    close(random_fd), close(zero_fd), close(from_fd), close(to_fd);
    close(filled[0]), close(filled[1]);
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
    for (size_t round = 0; round < 300 && (round < 40 || seconds() - since < 10); round++) {
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
