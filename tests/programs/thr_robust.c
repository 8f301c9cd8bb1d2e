// odtest: expect=any mem=100 timeout=120 user=any
// odtest: link=-lpthread
/*
 * Threads end while they hold robust locks, beside forks that freeze and refreeze the memory of the
 * locks: who waits for one, or comes later, is told that the owner is dead. Main threads end beside
 * such forks, too, and are joined.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>

enum { TURNS = 300, LOCKS = 5, MAINS = 10 };
static const size_t BYTES = 16 * OD_MB;
static char *region;
static atomic_int turns, held;
static pthread_t main_thread;

/* Locks in memory that is frozen, and one that processes share. */
static pthread_mutex_t *lock(int i)
{
    static pthread_mutex_t *shared;
    if (!shared)
        shared = OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return i == 0 ? shared : (pthread_mutex_t *)(region + BYTES - (size_t)i * 3 * OD_PAGE);
}

static void make(int i)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    CHECK(pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST) == 0, "robust");
    CHECK(i > 0 || pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED) == 0, "shared");
    CHECK(pthread_mutex_init(lock(i), &kind) == 0, "mutex");
}

static void *owner(void *pause)
{
    for (int i = 0; i < LOCKS; i++)
        CHECK(pthread_mutex_lock(lock(i)) == 0, "lock %d", i);
    held = 1;
    usleep((useconds_t)(long)pause);
    return NULL;
}

static void *heir(void *unused)
{
    (void)unused;
    for (int i = LOCKS; i-- > 0;) {
        int answer = pthread_mutex_lock(lock(i));
        CHECK(answer == EOWNERDEAD, "turn %d, lock %d: %s", (int)turns, i, strerror(answer));
        CHECK(pthread_mutex_consistent(lock(i)) == 0, "consistent");
        CHECK(pthread_mutex_unlock(lock(i)) == 0, "unlock");
    }
    return NULL;
}

static void *cycle(void *unused)
{
    uint32_t seed = 3;
    while (turns < TURNS) {
        pthread_t dies, waits;
        held = 0;
        long pause = od_random(&seed) % 3000;
        CHECK(pthread_create(&dies, NULL, owner, (void *)pause) == 0, "thread");
        while (!held)
            usleep(20);
        CHECK(pthread_create(&waits, NULL, heir, NULL) == 0, "thread");
        CHECK(pthread_join(waits, NULL) == 0 && pthread_join(dies, NULL) == 0, "join");
        turns++;
    }
    return unused;
}

static void robust(void)
{
    pthread_t thread;
    for (int i = 0; i < LOCKS; i++)
        make(i);
    CHECK(pthread_create(&thread, NULL, cycle, NULL) == 0, "thread");
    for (size_t round = 0; turns < TURNS; round++) {
        region_touch(region, BYTES / 2, 5, round);
        region_look(region, BYTES / 2, 5, "beside locks");
    }
    CHECK(pthread_join(thread, NULL) == 0, "join");
}

static void *forks(void *unused)
{
    for (size_t round = 0; !turns || round < 8; round++) {
        region_touch(region, BYTES / 2, 5, round);
        region_look(region, BYTES / 2, 5, "beside a main thread that ends");
    }
    return unused;
}

static void *joins(void *other)
{
    CHECK(pthread_join(main_thread, NULL) == 0, "join of the main thread");
    turns = 1;
    CHECK(pthread_join(*(pthread_t *)other, NULL) == 0, "join");
    _exit(0);
}

int main(void)
{
    region = region_new(BYTES, 5);
    region_look(region, BYTES, 5, "before");
    robust();
    for (int i = 0; i < MAINS; i++) {
        pid_t pid = od_fork();
        if (pid == 0) {
            static pthread_t one, other;
            main_thread = pthread_self();
            turns = 0;
            CHECK(pthread_create(&one, NULL, forks, NULL) == 0, "thread");
            CHECK(pthread_create(&other, NULL, joins, &one) == 0, "thread");
            usleep((useconds_t)i * 1500);
            pthread_exit(NULL);
        }
        od_join(pid);
    }
    return od_done();
}
