// odtest: expect=froze timeout=60 mem=64 user=any
/*
 * Locks: mutexes, condition variables, barriers, semaphores and plain futexes that lie in private
 * memory which is frozen, folded and thawed under waiting threads, in their private and their
 * process-shared form (the kernel keys the shared form by page, and that page changes its kind);
 * process-shared and robust mutexes in MAP_SHARED memory between parent and children, including one
 * whose owner dies; priority inheritance.
 */
#include "proc_region.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

static const size_t BYTES = 16 * OD_MB;
static unsigned char *region;

struct locks { /* lies in the region, alone in its pages */
    pthread_mutex_t mutex, inherit;
    pthread_cond_t condition;
    pthread_barrier_t barrier;
    pthread_rwlock_t rw;
    sem_t semaphore, answer;
    _Atomic int word, turn;
    uint64_t a, b;
};
static struct locks *l;
static atomic_int stop, waiting;

static void init_locks(int shared)
{
    pthread_mutexattr_t m;
    pthread_condattr_t c;
    pthread_barrierattr_t b;
    pthread_rwlockattr_t r;
    memset(l, 0, sizeof *l);
    pthread_mutexattr_init(&m);
    pthread_mutexattr_setpshared(&m, shared);
    pthread_mutex_init(&l->mutex, &m);
    pthread_mutexattr_setprotocol(&m, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&l->inherit, &m);
    pthread_condattr_init(&c);
    pthread_condattr_setpshared(&c, shared);
    pthread_cond_init(&l->condition, &c);
    pthread_barrierattr_init(&b);
    pthread_barrierattr_setpshared(&b, shared);
    pthread_barrier_init(&l->barrier, &b, 2);
    pthread_rwlockattr_init(&r);
    pthread_rwlockattr_setpshared(&r, shared);
    pthread_rwlock_init(&l->rw, &r);
    sem_init(&l->semaphore, shared, 0);
    sem_init(&l->answer, shared, 0);
}

/* Plays with the main thread: waits at each kind in turn until told to stop. */
static void *partner(void *arg)
{
    int op = *(int *)arg ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
    for (int round = 0;; round++) {
        waiting++;
        sem_wait(&l->semaphore);
        if (atomic_load(&stop))
            return NULL;
        pthread_mutex_lock(&l->mutex);
        sem_post(&l->answer);
        waiting++;
        while (l->turn != round * 2 + 1)
            pthread_cond_wait(&l->condition, &l->mutex);
        pthread_mutex_unlock(&l->mutex);
        waiting++;
        pthread_barrier_wait(&l->barrier);
        waiting++;
        while (l->word != round + 1)
            syscall(SYS_futex, &l->word, op, round, NULL, NULL, 0);
        waiting++;
        pthread_mutex_lock(&l->inherit);
        l->a++, l->b++;
        pthread_mutex_unlock(&l->inherit);
        waiting++;
        pthread_rwlock_wrlock(&l->rw);
        l->a++, l->b++;
        pthread_rwlock_unlock(&l->rw);
        sem_post(&l->answer);
    }
}

/* The partner is asleep at the lock; now the memory below it changes its kind. */
static void disturb(int *steps)
{
    static int how;
    while (waiting <= *steps)
        usleep(50);
    ++*steps;
    usleep(300);
    switch (how++ % 5) {
    case 0: region_look(region, OD_MB, 62, "while a thread waits"); break;
    case 1: od_freeze(); break;
    case 2: l->b++, l->b--; od_refreeze(); break;
    case 3: od_thaw(); break;
    default: region_look(region, OD_MB, 62, "while a thread waits"); od_refreeze();
    }
}

/* A wait that a lost wake-up would make endless ends the program instead. */
static void await(sem_t *s, const char *what)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 15;
    CHECK(sem_timedwait(s, &limit) == 0, "%s: the other thread never woke: %s", what,
          strerror(errno));
}

static void play(int shared, const char *what)
{
    pthread_t thread;
    int steps = 0, op = shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE;
    init_locks(shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
    waiting = stop = 0;
    CHECK(pthread_create(&thread, NULL, partner, &shared) == 0, "pthread_create");
    for (int round = 0; round < 12; round++) {
        disturb(&steps);
        sem_post(&l->semaphore);
        await(&l->answer, what);
        disturb(&steps);
        pthread_mutex_lock(&l->mutex);
        l->turn = round * 2 + 1;
        pthread_cond_signal(&l->condition);
        pthread_mutex_unlock(&l->mutex);
        disturb(&steps);
        pthread_barrier_wait(&l->barrier);
        pthread_mutex_lock(&l->inherit);
        pthread_rwlock_rdlock(&l->rw);
        disturb(&steps);
        l->word = round + 1;
        syscall(SYS_futex, &l->word, op, INT_MAX, NULL, NULL, 0);
        disturb(&steps);
        CHECK(l->a == (uint64_t)round * 2 && l->b == l->a, "%s: entered a held lock", what);
        pthread_mutex_unlock(&l->inherit);
        disturb(&steps);
        CHECK(l->a == (uint64_t)round * 2 + 1, "%s: round %d: a is %llu", what, round,
              (unsigned long long)l->a);
        pthread_rwlock_unlock(&l->rw);
        await(&l->answer, what);
        CHECK(l->a == (uint64_t)round * 2 + 2 && l->b == l->a, "%s: an addition is lost", what);
    }
    stop = 1;
    sem_post(&l->semaphore);
    pthread_join(thread, NULL);
}

struct common { /* MAP_SHARED, between processes */
    pthread_mutex_t mutex, robust;
    sem_t semaphore;
    uint64_t a, b;
};

static void between_processes(const char *when)
{
    struct common *c =
        OK(mmap(NULL, OD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pthread_mutexattr_t m;
    pid_t pid[4];
    pthread_mutexattr_init(&m);
    pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&c->mutex, &m);
    pthread_mutexattr_setrobust(&m, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&c->robust, &m);
    sem_init(&c->semaphore, 1, 0);
    for (int i = 0; i < 4; i++) {
        region_touch(region, 14 * OD_MB, 62, (size_t)i);
        pid[i] = od_fork();
        if (pid[i] == 0) {
            for (int k = 0; k < 500; k++) {
                pthread_mutex_lock(&c->mutex);
                c->a++;
                c->b++;
                pthread_mutex_unlock(&c->mutex);
            }
            sem_wait(&c->semaphore);
            _exit(0);
        }
    }
    od_refreeze();
    for (int k = 0; k < 500; k++) {
        pthread_mutex_lock(&c->mutex);
        CHECK(c->a == c->b, "%s: shared mutex does not exclude", when);
        c->a++, c->b++;
        pthread_mutex_unlock(&c->mutex);
    }
    for (int i = 0; i < 4; i++)
        sem_post(&c->semaphore);
    for (int i = 0; i < 4; i++)
        od_join(pid[i]);
    CHECK(c->a == 2500 && c->b == 2500, "%s: counted %llu of 2500", when, (unsigned long long)c->a);
    /* the owner dies with the lock: child, then grandchild of a frozen parent */
    for (int i = 0; i < 3; i++) {
        pid_t owner = od_fork();
        if (owner == 0) {
            if (i == 2)
                region_look(region, OD_MB, 62, when);
            int got = pthread_mutex_lock(&c->robust);
            _exit(got != 0);
        }
        od_join(owner);
        int got = pthread_mutex_lock(&c->robust);
        CHECK(got == EOWNERDEAD, "%s: lock of a dead owner gave %d", when, got);
        CHECK(pthread_mutex_consistent(&c->robust) == 0, "pthread_mutex_consistent");
        region_look(region, OD_MB, 62, when); /* a child's end must not release the parent's lock */
        CHECK(pthread_mutex_trylock(&c->robust) == EBUSY ||
                  pthread_mutex_trylock(&c->robust) == EDEADLK,
              "%s: lock lost", when);
        pthread_mutex_unlock(&c->robust);
    }
    OK(munmap(c, OD_PAGE));
}

int main(void)
{
    region = region_new(BYTES, 62);
    l = (struct locks *)(region + 15 * OD_MB + 512);
    play(0, "private, early");
    play(1, "process-shared in private memory, early");
    between_processes("early");
    region_grow_old(region, 14 * OD_MB, 62);
    play(0, "private, late");
    play(1, "process-shared in private memory, late");
    between_processes("late");
    region_check(region, 14 * OD_MB, 62, 1, "at the end");
    return od_done();
}
