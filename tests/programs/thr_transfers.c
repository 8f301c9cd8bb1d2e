// odtest: expect=froze timeout=60 mem=64
/*
 * Transfers that have begun and wait for room are held again and again: each comes back with all it
 * was to move, and what arrives is what was sent. In turn: write and writev to a pipe or a socket,
 * sendfile, send, sendmsg; a thousand buffers at once. One that meets an end or an error in its
 * rest answers what was moved before, as on stock.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const size_t BYTES = 8 * OD_MB, SENT = 3 * OD_MB + 12345;
enum { HOLDS = 6, PARTS = 1000 };
static void *region;
static char *text;
static int ends[2], file;

static struct iovec *parts(void)
{
    static struct iovec all[PARTS];
    size_t at = 0;
    for (int i = 0; i < PARTS; i++) {
        size_t some = i % 9 == 3 ? 0 : SENT / PARTS / 2 + (size_t)i % 70;
        size_t n = i == PARTS - 1 ? SENT - at : some;
        all[i] = (struct iovec){ text + at, n };
        at += n;
    }
    return all;
}
static ssize_t by_write(void) { return write(ends[1], text, SENT); }
static ssize_t by_writev(void) { return writev(ends[1], parts(), PARTS); }
static ssize_t by_sendfile(void)
{
    off_t from = 0;
    ssize_t n = sendfile(ends[1], file, &from, SENT);
    CHECK(from == n, "sendfile moved %zd and stands at %lld", n, (long long)from);
    return n;
}
static ssize_t by_send(void) { return send(ends[1], text, SENT, MSG_NOSIGNAL); }
static ssize_t by_sendmsg(void)
{
    struct msghdr m = { .msg_iov = parts(), .msg_iovlen = PARTS };
    return sendmsg(ends[1], &m, MSG_NOSIGNAL);
}

static const struct way {
    const char *name;
    ssize_t (*body)(void);
    int socket;
} WAYS[] = {
    { "write to a pipe", by_write, 0 },        { "writev to a pipe", by_writev, 0 },
    { "write to a socket", by_write, 1 },      { "writev to a socket", by_writev, 1 },
    { "sendfile to a socket", by_sendfile, 1 }, { "send", by_send, 1 },
    { "sendmsg", by_sendmsg, 1 },
};
enum { WAYS_COUNT = sizeof WAYS / sizeof *WAYS };

struct sender {
    const struct way *way;
    atomic_int tid;
    ssize_t answer;
};

/* With its signals blocked: while fork() has those of its thread blocked (since glibc 2.41) a child
 * that ends wakes another one, on stock too, and a transfer that is woken answers what it moved. */
static void *send_there(void *arg)
{
    struct sender *me = arg;
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0, "pthread_sigmask");
    me->tid = (int)syscall(SYS_gettid);
    me->answer = me->way->body();
    return NULL;
}

/* Sleeps in a call: it waits for room. */
static void wait_until_asleep(int tid)
{
    char path[64], line[256];
    for (int asleep = 0; asleep < 3; usleep(2000)) {
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
        FILE *stat = fopen(path, "re");
        CHECK(stat && fgets(line, sizeof line, stat), "no %s", path);
        fclose(stat);
        asleep = strrchr(line, ')')[2] == 'S' ? asleep + 1 : 0;
    }
}

static void hold_once(size_t round)
{
    region_touch(region, BYTES, 30, round);
    region_look(region, BYTES, 30, "while a transfer waits");
}

static size_t take(char *to, size_t want)
{
    size_t got = 0;
    while (got < want) {
        ssize_t n = read(ends[0], to + got, want - got);
        CHECK(n >= 0, "read: %s", strerror(errno));
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return got;
}

static void one_way(const struct way *way, int early_end)
{
    struct sender sender = { .way = way };
    pthread_t thread;
    char *got = od_map(SENT);
    size_t step = SENT / (HOLDS + 2), at = 0;
    if (way->socket)
        OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    else
        OK(pipe2(ends, O_CLOEXEC));
    CHECK(pthread_create(&thread, NULL, send_there, &sender) == 0, "pthread_create");
    while (!sender.tid)
        usleep(1000);
    for (size_t i = 0; i < HOLDS; i++) {
        wait_until_asleep(sender.tid);
        hold_once(i);
        hold_once(i + 1); /* and once where nothing has moved since */
        at += take(got + at, step);
    }
    if (early_end) {
        wait_until_asleep(sender.tid);
        close(ends[0]);
        pthread_join(thread, NULL);
        CHECK(sender.answer >= (ssize_t)at && sender.answer < (ssize_t)SENT,
              "%s answered %zd, and nobody reads after %zu", way->name, sender.answer, at);
    } else {
        at += take(got + at, SENT - at);
        pthread_join(thread, NULL);
        CHECK(sender.answer == (ssize_t)SENT, "%s answered %zd of %zu", way->name, sender.answer,
              SENT);
        close(ends[0]);
    }
    close(ends[1]);
    CHECK(memcmp(got, text, at) == 0, "%s: other bytes came", way->name);
    munmap(got, SENT);
}

static atomic_int cleaned;
static void note_cleaning(void *unused)
{
    (void)unused;
    cleaned = 1;
}
static void *send_with_care(void *arg)
{
    pthread_cleanup_push(note_cleaning, NULL);
    send_there(arg);
    pthread_cleanup_pop(0);
    return NULL;
}

/* A thread is cancelled in the rest of its transfer. Since glibc 2.41 a call that has moved
 * something answers that, and is no point to be cancelled at. */
static void cancel_one(void)
{
    struct sender sender = { .way = &WAYS[0] };
    pthread_t thread;
    void *result = NULL;
    static char got[OD_MB];
    size_t taken = 0;
    OK(pipe2(ends, O_CLOEXEC));
    CHECK(pthread_create(&thread, NULL, send_with_care, &sender) == 0, "pthread_create");
    while (!sender.tid)
        usleep(1000);
    for (size_t i = 0; i < 3; i++) {
        wait_until_asleep(sender.tid);
        hold_once(i);
        CHECK(take(got + taken, OD_PAGE * 4) == OD_PAGE * 4, "the pipe is empty");
        taken += OD_PAGE * 4;
    }
    wait_until_asleep(sender.tid);
    hold_once(3);
    CHECK(pthread_cancel(thread) == 0, "pthread_cancel");
    pthread_join(thread, &result);
    close(ends[1]);
    taken += take(got + taken, sizeof got - taken);
    close(ends[0]);
    CHECK(memcmp(got, text, taken) == 0, "other bytes came from the cancelled thread");
    CHECK(result == PTHREAD_CANCELED ? cleaned : sender.answer == (ssize_t)taken,
          "it was not cancelled, and answered %zd for %zu", sender.answer, taken);
}

int main(void)
{
    char name[] = "sent-XXXXXX";
    signal(SIGPIPE, SIG_IGN);
    region = region_new(BYTES, 30);
    text = od_map(SENT);
    for (size_t i = 0; i < SENT; i++)
        text[i] = (char)(i * 7 + i / 4096 * 13);
    file = OK(mkostemp(name, O_CLOEXEC));
    unlink(name);
    CHECK(write(file, text, SENT) == (ssize_t)SENT, "write");
    hold_once(0);
    for (int i = 0; i < WAYS_COUNT; i++)
        one_way(&WAYS[i], 0);
    one_way(&WAYS[0], 1);
    cancel_one();
    one_way(&WAYS[5], 1);
    region_check(region, BYTES, 30, 1, "at the end");
    close(file);
    return od_done();
}
