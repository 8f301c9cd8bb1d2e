// odtest: expect=froze mem=100
/*
 * What is wrapped is called for the first time while another thread holds the loader's lock and
 * keeps it until the calls are over: none of them may ask the loader anything. The lock is held by
 * dlopen() of a pipe, which waits for the file's first bytes.
 */
#include "proc_region.h"
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

static const size_t BYTES = 16 * OD_MB;
static void *region;
static char fifo[64];

static void *open_pipe(void *unused)
{
    (void)unused;
    if (dlopen(fifo, RTLD_NOW))
        FAIL("a pipe was loaded as a library");
    return NULL;
}

static int in_clone(void *unused)
{
    (void)unused;
    return 0;
}

/* One call of each kind that goes on to the C library (but pthread_create, which waits for the
 * loader on stock too). */
static void call_everything(void *block)
{
    static char stack[65536];
    pthread_mutexattr_t attributes;
    char *moved = realloc(block, 5000);
    CHECK(moved && moved[99] == 7, "realloc lost a byte");
    free(moved);
    region_look(region, BYTES, 1, "beside dlopen");
    pthread_mutexattr_init(&attributes);
    CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0, "no protocol");
    od_join(OK(clone(in_clone, stack + sizeof stack, SIGCHLD, NULL)));
}

int main(void)
{
    region = region_new(BYTES, 1);
    char *block = malloc(100);
    block[99] = 7;
    region_look(region, BYTES, 1, "before dlopen");
    snprintf(fifo, sizeof fifo, "/tmp/odtest-fifo-%d", (int)getpid());
    OK(mkfifo(fifo, 0600));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, open_pipe, NULL) == 0, "no thread");
    int held;
    while ((held = open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0 && errno == ENXIO)
        usleep(1000);
    unlink(fifo);
    CHECK(held >= 0, "open: %s", strerror(errno));
    alarm(20);
    call_everything(block);
    close(held);
    pthread_join(thread, NULL);
    od_verify(region, BYTES, 1, "the region");
    return od_done();
}
