// odtest: expect=froze timeout=90 mem=64
/*
 * Threads read from a terminal, which wants so many characters at once, and write to it with
 * writev, while nobody takes what they write. Forks go on; the reader gets all it asked for in one
 * answer, the writer has written all in one.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <termios.h>

enum { WANTED = 32, PARTS = 8, PART = 8000, TURNS = 3 };
static const size_t BYTES = 8 * OD_MB;
static int master, slave[2];
static atomic_int read_back, written_back;
static char part[PARTS][PART];

static int open_terminal(int minimum)
{
    struct termios raw;
    int fd = OK(open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC));
    OK(tcgetattr(fd, &raw));
    cfmakeraw(&raw);
    raw.c_cc[VMIN] = (cc_t)minimum;
    raw.c_cc[VTIME] = 0;
    OK(tcsetattr(fd, TCSANOW, &raw));
    return fd;
}

static void *read_all(void *unused)
{
    char text[WANTED];
    (void)unused;
    for (int i = 0; i < TURNS; i++) {
        ssize_t n = read(slave[0], text, WANTED);
        CHECK(n == WANTED, "read answered %zd of %d: %s", n, WANTED, strerror(errno));
        read_back++;
    }
    return NULL;
}

static void *write_all(void *unused)
{
    struct iovec all[PARTS];
    (void)unused;
    for (int i = 0; i < PARTS; i++)
        all[i] = (struct iovec){ part[i], PART };
    for (int i = 0; i < TURNS; i++) {
        ssize_t n = writev(slave[1], all, PARTS);
        CHECK(n == PARTS * PART, "writev answered %zd of %d: %s", n, PARTS * PART, strerror(errno));
        written_back++;
    }
    return NULL;
}

static void *region;
static size_t rounds;
static void fork_once(void)
{
    region_touch(region, BYTES, 30, rounds++);
    region_look(region, BYTES, 30, "beside a terminal");
    usleep(2000);
}

int main(void)
{
    pthread_t reader, writer;
    char text[4096];
    master = OK(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    OK(grantpt(master)), OK(unlockpt(master));
    slave[0] = slave[1] = open_terminal(WANTED);
    region = region_new(BYTES, 30);
    for (int i = 0; i < PARTS; i++)
        memset(part[i], 'a' + i, PART);
    for (int i = 0; i < 5; i++)
        fork_once();
    CHECK(pthread_create(&reader, NULL, read_all, NULL) == 0, "pthread_create");
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < WANTED; i += 4) {
            OK(write(master, "abcd", 4));
            fork_once();
        }
        while (read_back <= turn)
            usleep(1000);
    }
    pthread_join(reader, NULL);
    CHECK(pthread_create(&writer, NULL, write_all, NULL) == 0, "pthread_create");
    for (size_t got = 0; got < (size_t)TURNS * PARTS * PART;) {
        if (got % 3 == 0 || written_back == 0)
            fork_once();
        ssize_t n = OK(read(master, text, sizeof text));
        for (ssize_t i = 0; i < n; i++, got++)
            CHECK(text[i] == 'a' + (char)(got / PART % PARTS), "character %zu is %c", got, text[i]);
    }
    pthread_join(writer, NULL);
    close(slave[0]), close(master);
    return od_done();
}
