/* Threads that wait on words in live memory are woken, whatever their waits are known by: locks and
 * semaphores for several processes, robust mutexes, futexes that are not private, and the end of a
 * thread whose stack and descriptor lie in such memory. Forks switch the memory meanwhile. */
// odtest: modes=stock,huge,live expect=froze live=shared timeout=120 mem=300
#include "odtest.h"
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>

#define SIZE (8 * OD_MB)

/* Private objects first: memory stays live with them. Each later kind may end that for good. */
struct objects {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    sem_t semaphore;
    int ready, go, word, waits;
};

static char *memory;
static struct objects *objects;

static void fork_once(void)
{
    pid_t pid = od_fork();
    if (pid == 0)
        _exit(0);
    memory[SIZE / 2]++;
    od_join(pid);
}

static void *wait_for_condition(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&objects->mutex);
    objects->ready = 1;
    while (!objects->go)
        pthread_cond_wait(&objects->condition, &objects->mutex);
    pthread_mutex_unlock(&objects->mutex);
    return NULL;
}

static void *wait_for_semaphore(void *argument)
{
    (void)argument;
    __atomic_store_n(&objects->ready, 1, __ATOMIC_SEQ_CST);
    while (sem_wait(&objects->semaphore))
        ;
    return NULL;
}

static void *wait_for_word(void *argument)
{
    int operation = *(int *)argument;
    __atomic_store_n(&objects->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&objects->word, __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &objects->word, operation, 0, NULL, NULL, 0);
    return NULL;
}

/* The thread sleeps in the kernel: its state says so. */
static void begin(pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *),
                  void *argument)
{
    objects->ready = objects->go = objects->word = 0;
    CHECK(pthread_create(thread, how, body, argument) == 0, "pthread_create");
    while (!__atomic_load_n(&objects->ready, __ATOMIC_SEQ_CST))
        usleep(100);
    usleep(20000);
}

static void condition(int shared)
{
    pthread_mutexattr_t of_mutex;
    pthread_condattr_t of_condition;
    pthread_mutexattr_init(&of_mutex);
    pthread_condattr_init(&of_condition);
    if (shared) {
        pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
        pthread_condattr_setpshared(&of_condition, PTHREAD_PROCESS_SHARED);
    }
    if (shared == 2)
        pthread_mutexattr_setrobust(&of_mutex, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&objects->mutex, &of_mutex);
    pthread_cond_init(&objects->condition, &of_condition);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        begin(&thread, NULL, wait_for_condition, NULL);
        fork_once();
        pthread_mutex_lock(&objects->mutex);
        objects->go = 1;
        pthread_cond_signal(&objects->condition);
        pthread_mutex_unlock(&objects->mutex);
        pthread_join(thread, NULL);
        fork_once();
    }
}

static void semaphore(int shared)
{
    sem_init(&objects->semaphore, shared, 0);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        begin(&thread, NULL, wait_for_semaphore, NULL);
        fork_once();
        sem_post(&objects->semaphore);
        pthread_join(thread, NULL);
        fork_once();
    }
}

static void futex(int private)
{
    for (int i = 0; i < 3; i++) {
        int operation = FUTEX_WAIT | private;
        pthread_t thread;
        begin(&thread, NULL, wait_for_word, &operation);
        fork_once();
        __atomic_store_n(&objects->word, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &objects->word, FUTEX_WAKE | private, 1, NULL, NULL, 0);
        pthread_join(thread, NULL);
        fork_once();
    }
}

static void *end_late(void *argument)
{
    __atomic_store_n(&objects->ready, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&objects->go, __ATOMIC_SEQ_CST))
        usleep(100);
    return argument;
}

static void *join(void *argument)
{
    CHECK(pthread_join(*(pthread_t *)argument, NULL) == 0, "pthread_join");
    return NULL;
}

/* One thread waits for the end of another, whose descriptor is in the memory that switches. */
static void stack(void)
{
    pthread_attr_t how;
    pthread_attr_init(&how);
    CHECK(pthread_attr_setstack(&how, memory + SIZE - OD_MB, OD_MB) == 0, "setstack");
    for (int i = 0; i < 3; i++) {
        pthread_t thread, joiner;
        begin(&thread, &how, end_late, NULL);
        CHECK(pthread_create(&joiner, NULL, join, &thread) == 0, "pthread_create");
        usleep(20000);
        fork_once();
        __atomic_store_n(&objects->go, 1, __ATOMIC_SEQ_CST);
        CHECK(pthread_join(joiner, NULL) == 0, "pthread_join");
        fork_once();
    }
}

int main(void)
{
    memory = OK(
        mmap(NULL, SIZE + 2 * OD_MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memory = (char *)(((uintptr_t)memory + 2 * OD_MB - 1) & -(2 * OD_MB));
    memset(memory, 1, SIZE);
    objects = (struct objects *)(memory + OD_MB);
    /* Each part in a process of its own, with memory of its own. */
    for (int part = 0; part < 9; part++) {
        pid_t pid = od_fork();
        if (pid == 0) {
            alarm(60);
            memory = OK(mmap(NULL, SIZE + 2 * OD_MB, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            memory = (char *)(((uintptr_t)memory + 2 * OD_MB - 1) & -(2 * OD_MB));
            memset(memory, 1, SIZE);
            objects = (struct objects *)(memory + OD_MB);
            fork_once();
            fork_once();
            if (part < 3)
                condition(part);
            else if (part < 5)
                semaphore(part - 3);
            else if (part < 7)
                futex(part == 5 ? FUTEX_PRIVATE_FLAG : 0);
            else
                stack();
            _exit(0);
        }
        od_join(pid);
    }
    return od_done();
}
