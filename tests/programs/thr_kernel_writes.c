// odtest: expect=froze timeout=60 mem=64
/*
 * No lost write by the kernel on behalf of other threads: read, readv and pread from pipes, sockets
 * and files, recvmsg with a descriptor in its control data, getdents-like small results, into the
 * region while the main thread forks, freezes and folds. Every byte that a call said it delivered
 * must be there, at once and at the end.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { FORKS = 100, CHUNK = 6000 };
static const size_t BYTES = 32 * OD_MB, PART = 8 * OD_MB;
static unsigned char *region;
static atomic_int stop;
static int file;
static const size_t FILE_BYTES = 4 * OD_MB;

/* Byte i of a stream: known to both ends. */
static unsigned char stream_byte(uint64_t i) { return (unsigned char)(i * 2654435761u >> 7); }

struct feed {
    int from, to;
    unsigned char *part; /* a quarter of the region */
    uint64_t delivered;
};

static void *write_stream(void *arg)
{
    struct feed *f = arg;
    static _Thread_local unsigned char buffer[CHUNK];
    uint64_t at = 0;
    while (!atomic_load(&stop)) {
        for (int i = 0; i < CHUNK; i++)
            buffer[i] = stream_byte(at + (uint64_t)i);
        for (size_t sent = 0; sent < CHUNK;) {
            ssize_t n = write(f->to, buffer + sent, CHUNK - sent);
            CHECK(n > 0, "write to a stream: %s", strerror(errno));
            sent += (size_t)n;
        }
        at += CHUNK;
        usleep(300);
    }
    close(f->to);
    return NULL;
}

/* Where byte `at` of the stream lies: the part in turns of 5,000 bytes at places spread over it. */
static unsigned char *place(const struct feed *f, uint64_t turn)
{
    return f->part + turn * 77777 % (PART - 8192);
}

static void check_bytes(const unsigned char *there, uint64_t at, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        CHECK(there[i] == stream_byte(at + i),
              "%s: byte %zu of %zu at %p is lost: holds %d, want %d", what, i, n,
              (const void *)there, there[i], stream_byte(at + i));
}

static void *read_stream(void *arg)
{
    struct feed *f = arg;
    uint64_t previous_at = 0, turn = 0;
    size_t previous = 0;
    for (;; turn++) {
        unsigned char *there = place(f, turn), *before = place(f, turn - 1);
        ssize_t n = turn % 2 ? read(f->from, there, 5000)
                             : readv(f->from, (struct iovec[]){{there, 3}, {there + 3, 4997}}, 2);
        CHECK(n >= 0, "read: %s", strerror(errno));
        if (n == 0)
            break;
        check_bytes(there, f->delivered, (size_t)n, "at once");
        if (turn && (there >= before + 5000 || before >= there + 5000))
            check_bytes(before, previous_at, previous, "one read later");
        previous_at = f->delivered;
        previous = (size_t)n;
        f->delivered += (uint64_t)n;
    }
    return NULL;
}

/* pread of a file: offsets known, so the content is known. */
static void *read_file(void *arg)
{
    struct feed *f = arg;
    for (uint64_t turn = 0; !atomic_load(&stop); turn++) {
        off_t at = (off_t)(turn * 99991 % (FILE_BYTES - 20000));
        size_t want = 1 + turn * 313 % 19000;
        unsigned char *there = f->part + turn * 131 * 64 % (PART - 20000);
        CHECK(pread(file, there, want, at) == (ssize_t)want, "pread: %s", strerror(errno));
        check_bytes(there, (uint64_t)at, want, "pread");
        f->delivered += want;
        usleep(100);
    }
    return NULL;
}

/* A message with two pieces, an address and a descriptor; all the places the kernel fills lie in
 * the region. */
static void *exchange_messages(void *arg)
{
    struct feed *f = arg;
    unsigned char *base = f->part;
    for (uint64_t turn = 0; !atomic_load(&stop); turn++) {
        unsigned char text[3000];
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = stream_byte(turn + i);
        struct iovec out = { text, sizeof text };
        union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
        struct msghdr message = {.msg_iov = &out,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof control};
        memset(&control, 0, sizeof control);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &file, sizeof file);
        CHECK(sendmsg(f->to, &message, 0) == 3000, "sendmsg: %s", strerror(errno));
        size_t at = turn * 50021 % (PART - 65536) & ~(size_t)63;
        struct msghdr *in = (struct msghdr *)(base + at);
        struct iovec *pieces = (struct iovec *)(base + at + 4096 * 2 + 64);
        unsigned char *first = base + at + 4096 * 4 + 1001, *second = base + at + 4096 * 6 + 17,
                      *box = base + at + 4096 * 9;
        pieces[0] = (struct iovec){ first, 1000 };
        pieces[1] = (struct iovec){ second, 4000 };
        *in = (struct msghdr){
            .msg_iov = pieces, .msg_iovlen = 2, .msg_control = box, .msg_controllen = 256};
        CHECK(recvmsg(f->from, in, MSG_CMSG_CLOEXEC) == 3000, "recvmsg: %s", strerror(errno));
        check_bytes(first, turn, 1000, "recvmsg, first piece");
        check_bytes(second, turn + 1000, 2000, "recvmsg, second piece");
        struct cmsghdr *got = CMSG_FIRSTHDR(in);
        int fd = -1;
        CHECK(got && got->cmsg_type == SCM_RIGHTS && in->msg_flags == MSG_CMSG_CLOEXEC,
              "recvmsg: control data is lost");
        memcpy(&fd, CMSG_DATA(got), sizeof fd);
        CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC, "recvmsg: descriptor %d", fd);
        close(fd);
        f->delivered++;
        usleep(200);
    }
    return NULL;
}

static void make_file(void)
{
    char name[] = "kernel_writes.XXXXXX";
    file = OK(mkstemp(name));
    OK(unlink(name));
    unsigned char *text = malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        text[i] = stream_byte(i);
    CHECK(write(file, text, FILE_BYTES) == (ssize_t)FILE_BYTES, "write: %s", strerror(errno));
    free(text);
}

int main(void)
{
    pthread_t thread[6];
    struct feed feed[4];
    int ends[2];
    memset(feed, 0, sizeof feed);
    region = region_new(BYTES, 34);
    make_file();
    for (int i = 0; i < 4; i++)
        feed[i].part = region + (size_t)i * PART;
    OK(pipe(ends));
    feed[0].from = ends[0], feed[0].to = ends[1];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    feed[1].from = ends[0], feed[1].to = ends[1];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    feed[3].from = ends[0], feed[3].to = ends[1];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&thread[i], NULL, write_stream, &feed[i]) == 0, "pthread_create");
        CHECK(pthread_create(&thread[2 + i], NULL, read_stream, &feed[i]) == 0, "pthread_create");
    }
    CHECK(pthread_create(&thread[4], NULL, read_file, &feed[2]) == 0, "pthread_create");
    CHECK(pthread_create(&thread[5], NULL, exchange_messages, &feed[3]) == 0, "pthread_create");
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (pid == 0) {
            for (int k = 0; k < 4; k++) /* the last page of each part is nobody's */
                od_verify_at(feed[k].part + PART - 64, 64, 34, ((size_t)(k + 1) * PART - 64) / 8,
                             "untouched");
            _exit(0);
        }
        od_join(pid);
        if (i % 20 == 9)
            od_refreeze();
        if (i == 50)
            od_thaw();
        if (i == 55)
            od_freeze();
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 6; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++)
        CHECK(feed[i].delivered > 20, "feed %d hardly ran: %llu", i,
              (unsigned long long)feed[i].delivered);
    close(feed[0].from), close(feed[1].from), close(feed[3].from), close(feed[3].to), close(file);
    return od_done();
}
