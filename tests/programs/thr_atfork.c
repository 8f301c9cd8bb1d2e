// odtest: expect=frozen timeout=60 mem=64 user=any
/*
 * pthread_atfork: prepare handlers in reverse order of registration, parent and child handlers in
 * order, each once a fork, in the thread that forks; also when a handler allocates, when forks come
 * from four threads at once, from a thread on a small stack, and when a handler itself looks at the
 * region. posix_spawn and vfork run none.
 */
#include "proc_region.h"
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>

extern char **environ;
static const size_t BYTES = 16 * OD_MB;
static void *region;
static __thread char trace[64];
static __thread int traced;
static pthread_mutex_t guarded = PTHREAD_MUTEX_INITIALIZER;
static uint64_t guarded_a, guarded_b; /* equal whenever the lock is free */
static atomic_int runs;

static void note(char c)
{
    if (traced < 60)
        trace[traced++] = c;
    free(malloc(1000));
    runs++;
}
static void prepare_a(void) { note('a'); }
static void prepare_b(void) { note('b'); }
static void prepare_lock(void) { pthread_mutex_lock(&guarded), note('l'); }
static void parent_a(void) { note('A'); }
static void parent_b(void) { note('B'); }
static void parent_unlock(void) { note('L'), pthread_mutex_unlock(&guarded); }
static void child_a(void) { note('x'); }
static void child_b(void) { note('y'); }
static void child_unlock(void)
{
    note('z');
    CHECK(guarded_a == guarded_b, "a child sees the guarded pair torn: %llu %llu",
          (unsigned long long)guarded_a, (unsigned long long)guarded_b);
    pthread_mutex_unlock(&guarded);
}

static void forget(void)
{
    traced = 0;
    memset(trace, 0, sizeof trace);
}

static void fork_once(const char *when)
{
    forget();
    pid_t pid = fork();
    CHECK(pid >= 0, "%s: fork: %s", when, strerror(errno));
    if (pid == 0) {
        CHECK(!strcmp(trace, "lbaxyz"), "%s: in the child the handlers ran as %s", when, trace);
        region_check(region, BYTES, 60, 4 * REGION_STEP, when);
        forget();
        region_look(region, OD_MB, 60, when);
        CHECK(!strcmp(trace, "lbaABL"), "%s: in a forking child the handlers ran as %s", when,
              trace);
        _exit(0);
    }
    CHECK(!strcmp(trace, "lbaABL"), "%s: in the parent the handlers ran as %s", when, trace);
    od_join(pid);
}

static void *fork_many(void *when)
{
    for (int i = 0; i < 15; i++) {
        fork_once(when);
        pthread_mutex_lock(&guarded);
        guarded_a++;
        sched_yield();
        guarded_b++;
        pthread_mutex_unlock(&guarded);
        if (i % 5 == 3)
            od_refreeze();
    }
    return NULL;
}

static void from_threads(int count, size_t stack, const char *when)
{
    pthread_t thread[4];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    /* 128 KB on aarch64. */
    if (stack && stack < (size_t)sysconf(_SC_THREAD_STACK_MIN))
        stack = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    if (stack)
        CHECK(pthread_attr_setstacksize(&attributes, stack) == 0, "stack size");
    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&thread[i], &attributes, fork_many, (void *)when) == 0,
              "pthread_create");
    for (int i = 0; i < 10; i++) { /* the main thread writes meanwhile */
        region_touch(region, BYTES, 60, (size_t)i);
        usleep(2000);
    }
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    pthread_attr_destroy(&attributes);
}

static void none_for_spawn(void)
{
    pid_t pid;
    int before = runs;
    CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, (char *[]){"true", NULL}, environ) == 0,
          "posix_spawn");
    od_join(pid);
    pid = vfork();
    if (pid == 0)
        _exit(0);
    od_join(pid);
    od_freeze();
    od_refreeze();
    od_thaw();
    od_freeze();
    CHECK(runs == before, "handlers ran %d times without a fork", runs - before);
}

int main(void)
{
    region = region_new(BYTES, 60);
    CHECK(pthread_atfork(prepare_a, parent_a, child_a) == 0, "pthread_atfork");
    CHECK(pthread_atfork(prepare_b, parent_b, child_b) == 0, "pthread_atfork");
    CHECK(pthread_atfork(prepare_lock, parent_unlock, child_unlock) == 0, "pthread_atfork");
    fork_once("early");
    from_threads(1, 0, "from another thread, early");
    region_grow_old(region, BYTES, 60);
    fork_once("late");
    none_for_spawn();
    from_threads(4, 0, "from four threads");
    from_threads(1, 32768, "from a thread on a small stack");
    from_threads(4, 0, "from four threads, again");
    region_check(region, BYTES, 60, 1, "at the end");
    CHECK(guarded_a == 150 && guarded_b == 150, "guarded pair %llu %llu",
          (unsigned long long)guarded_a, (unsigned long long)guarded_b);
    return od_done();
}
