// odtest: expect=froze timeout=60 mem=64
/*
 * A thread is held while it waits in poll, and later gets what it waits for. The kernel keeps how
 * to begin that call again. When the same thread forks then, nothing is begun again: the fork does
 * not wait for what nobody will send, and what was told of the poll stays as it was.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>

static const size_t BYTES = 8 * OD_MB;
static void *region;
static int data[2];
static atomic_int waits;
static struct pollfd wanted;

static void hold_once(size_t round)
{
    region_touch(region, BYTES, 30, round);
    region_look(region, BYTES, 30, "while the main thread waits");
    od_refreeze();
}

static void *hold_and_send(void *unused)
{
    while (!waits)
        usleep(1000);
    usleep(20000);
    for (size_t round = 0; round < 5; round++)
        hold_once(round);
    OK(write(data[1], "!", 1));
    return unused;
}

int main(void)
{
    pthread_t thread;
    char byte;
    region = region_new(BYTES, 30);
    OK(pipe2(data, O_CLOEXEC));
    wanted = (struct pollfd){ data[0], POLLIN, 0 };
    CHECK(pthread_create(&thread, NULL, hold_and_send, NULL) == 0, "pthread_create");
    waits = 1;
    CHECK(poll(&wanted, 1, -1) == 1 && wanted.revents == POLLIN, "poll: %s", strerror(errno));
    OK(read(data[0], &byte, 1));
    pthread_join(thread, NULL);
    /* With another thread there, so that a fork would hold it. */
    waits = 0;
    CHECK(pthread_create(&thread, NULL, hold_and_send, NULL) == 0, "pthread_create");
    wanted.revents = 0x55;
    for (size_t round = 0; round < 5; round++)
        hold_once(round);
    CHECK(wanted.revents == 0x55, "revents is %#x", (unsigned)wanted.revents);
    waits = 1;
    pthread_join(thread, NULL);
    close(data[0]), close(data[1]);
    return od_done();
}
