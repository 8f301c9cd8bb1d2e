// odtest: expect=froze timeout=60 mem=64
/*
 * A handler that collects children is set by the C library's own function, as in a plug-in loaded
 * with RTLD_DEEPBIND: the library's wrapper does not see it. Threads are held before anything else
 * tells of it. The handler runs in this process alone.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 20, THREADS = 3 };
static const size_t BYTES = 8 * OD_MB;
static atomic_int over, elsewhere;
static pid_t me;

static void collect(int signal)
{
    int error = errno;
    (void)signal;
    if (getpid() != me)
        elsewhere++;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    errno = error;
}

static void *work(void *unused)
{
    while (!over)
        usleep(100);
    return unused;
}

int main(void)
{
    void *c_library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    if (!c_library)
        od_skip("no libc.so.6");
    int (*set)(int, const struct sigaction *, struct sigaction *) =
        (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(c_library, "sigaction");
    CHECK(set, "sigaction: %s", dlerror());
    const struct sigaction collects = { .sa_handler = collect, .sa_flags = SA_RESTART };
    const struct sigaction none = { .sa_handler = SIG_DFL };
    pthread_t thread[THREADS];
    me = getpid();
    void *region = region_new(BYTES, 50);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, work, NULL) == 0, "pthread_create");
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < 2; i++) {
            region_touch(region, BYTES, 50, round + i);
            region_look(region, BYTES, 50, "without a handler");
            od_refreeze();
        }
        OK(set(SIGCHLD, &collects, NULL));
        region_touch(region, BYTES, 50, round + 2);
        od_refreeze();
        OK(set(SIGCHLD, &none, NULL));
    }
    CHECK(!elsewhere, "the handler ran in another process %d times", (int)elsewhere);
    over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    region_check(region, BYTES, 50, 1, "at the end");
    OK(munmap(region, BYTES));
    return od_done();
}
