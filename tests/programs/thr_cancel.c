// odtest: expect=froze mem=64 user=any
/*
 * Cancellation: fork is no cancellation point, so a request that is pending (deferred, or disabled)
 * is not acted on inside it, neither in the parent nor in the child, whatever calls a freeze makes;
 * it is acted on at the next point. A request that arrives while the thread forks in a loop ends it
 * only at its own points, and cleanup handlers run once. vmsplice stays one.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

static const size_t BYTES = 16 * OD_MB;
static void *region;
static atomic_int cleaned, forks_done, go;

static void clean(void *unused)
{
    (void)unused;
    cleaned++;
}

static void fork_here(const char *when)
{
    int state;
    pid_t pid = fork();
    if (pid == 0) {
        region_check(region, BYTES, 61, REGION_STEP, when);
        _exit(0);
    }
    CHECK(pid > 0, "%s: fork", when);
    forks_done++;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* waitpid is a point of its own */
    od_join(pid);
    pthread_setcancelstate(state, NULL);
}

/* The request is pending before the first fork; ten forks must pass with it. */
static void *with_pending(void *when)
{
    pthread_cleanup_push(clean, NULL);
    pthread_cancel(pthread_self());
    for (size_t i = 0; i < 10; i++) {
        region_touch(region, BYTES, 61, i);
        fork_here(when);
    }
    od_refreeze();
    od_thaw();
    od_freeze();
    forks_done += 1000;
    pthread_testcancel();
    FAIL("%s: the request was lost", (char *)when);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *with_disabled(void *when)
{
    int state;
    pthread_cleanup_push(clean, NULL);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    CHECK(state == PTHREAD_CANCEL_ENABLE, "cancel state");
    pthread_cancel(pthread_self());
    for (size_t i = 0; i < 10; i++) {
        region_touch(region, BYTES, 61, i);
        fork_here(when);
        pthread_testcancel();
    }
    forks_done += 1000;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    CHECK(state == PTHREAD_CANCEL_DISABLE, "the cancel state was changed");
    pthread_testcancel();
    FAIL("%s: the request was lost", (char *)when);
    pthread_cleanup_pop(0);
    return NULL;
}

/* The request comes at any moment; the only point is the one at the end of each turn. */
static void *in_a_loop(void *when)
{
    pthread_cleanup_push(clean, NULL);
    for (size_t i = 0;; i++) {
        region_touch(region, BYTES, 61, i);
        fork_here(when);
        forks_done += 1000; /* a turn is whole */
        atomic_store(&go, 1);
        pthread_testcancel();
        forks_done -= 1001;
    }
    pthread_cleanup_pop(0);
    return NULL;
}

/* vmsplice is a point: into a pipe that is full it waits. */
static void *in_vmsplice(void *when)
{
    int ends[2];
    static char text[4096];
    struct iovec v = { text, sizeof text };
    OK(pipe(ends));
    pthread_cleanup_push(clean, NULL);
    forks_done += 1000;
    atomic_store(&go, 1);
    while (vmsplice(ends[1], &v, 1, 0) > 0) {
    }
    FAIL("%s: %s", (char *)when, strerror(errno));
    pthread_cleanup_pop(0);
    return NULL;
}

static void run(void *(*body)(void *), const char *when, int from_here)
{
    pthread_t thread;
    void *result;
    cleaned = forks_done = go = 0;
    CHECK(pthread_create(&thread, NULL, body, (void *)when) == 0, "pthread_create");
    if (from_here) {
        while (!atomic_load(&go))
            usleep(100);
        usleep(7000);
        CHECK(pthread_cancel(thread) == 0, "pthread_cancel");
    }
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    CHECK(pthread_timedjoin_np(thread, &result, &end) == 0, "%s: it goes on", when);
    CHECK(result == PTHREAD_CANCELED, "%s: the thread was not cancelled", when);
    CHECK(cleaned == 1, "%s: cleanup ran %d times", when, cleaned);
    CHECK(forks_done >= 1000, "%s: cancelled inside a fork, after %d", when, forks_done);
}

int main(void)
{
    region = region_new(BYTES, 61);
    run(with_pending, "pending, early", 0);
    run(with_disabled, "disabled, early", 0);
    region_grow_old(region, BYTES, 61);
    run(with_pending, "pending, late", 0);
    run(with_disabled, "disabled, late", 0);
    for (int i = 0; i < 10; i++)
        run(in_a_loop, "at any moment", 1);
    run(in_vmsplice, "in vmsplice", 1);
    fork_here("after vmsplice");
    region_check(region, BYTES, 61, 1, "at the end");
    return od_done();
}
