// odtest: expect=froze timeout=90 mem=64
/*
 * A socket came through exec with a limit of time for reads. A thread that waits there is not held,
 * or its limit would begin anew with each hold and never be reached; one that waits on a socket
 * without a limit is held.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

static const size_t BYTES = 8 * OD_MB;
static atomic_int ready, back;
static int limited, pair[2];

static void *read_limited(void *unused)
{
    char byte;
    (void)unused;
    ready++;
    CHECK(recv(limited, &byte, 1, 0) == -1 && errno == EAGAIN, "recv: %s", strerror(errno));
    back = 1;
    return NULL;
}

static void *read_unlimited(void *unused)
{
    char byte;
    (void)unused;
    ready++;
    CHECK(recv(pair[0], &byte, 1, 0) == 1, "recv: %s", strerror(errno));
    return NULL;
}

static void limit_and_exec(void)
{
    int ends[2];
    char number[16];
    struct timeval t = { 1, 500000 };
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    OK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    snprintf(number, sizeof number, "%d", ends[0]);
    OK(execl("/proc/self/exe", "limited", number, NULL));
}

int main(int argc, char **argv)
{
    pthread_t thread[2];
    if (argc < 2)
        limit_and_exec();
    limited = atoi(argv[1]);
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    void *region = region_new(BYTES, 30);
    CHECK(pthread_create(&thread[0], NULL, read_unlimited, NULL) == 0, "pthread_create");
    while (ready < 1)
        usleep(1000);
    for (size_t round = 0; round < 10; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "beside a read without limit");
    }
    CHECK(pthread_create(&thread[1], NULL, read_limited, NULL) == 0, "pthread_create");
    double since = seconds();
    for (size_t round = 0; !back; round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "beside a read with a limit");
        usleep(5000);
        CHECK(seconds() - since < 100, "the limit is not reached after %zu forks", round);
    }
    OK(write(pair[1], "!", 1));
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    close(pair[0]), close(pair[1]);
    return od_done();
}
