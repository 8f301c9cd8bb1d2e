// odtest: expect=froze mem=100 user=any
/*
 * A semaphore's shared page lies where frozen memory was, which the C library has unmapped without
 * a word: advice that gives content up leaves it as it is, and processes go on sharing it. Also the
 * same semaphore opened twice.
 */
#include "proc_region.h"
#include <semaphore.h>

/* Gaps elsewhere are filled first. */
enum { COUNT = 12, MANY = 4096 };
static const size_t BYTES = 8 * OD_MB;

static void post(void *semaphore) { OK(sem_post(semaphore)); }

static sem_t *open_new(int i)
{
    char name[64];
    snprintf(name, sizeof name, "/odtest-semaphore-%d-%d", (int)getpid(), i);
    sem_t *semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 3);
    CHECK(semaphore != SEM_FAILED, "sem_open: %s", strerror(errno));
    CHECK(sem_open(name, 0) == semaphore, "the same semaphore is elsewhere");
    OK(sem_close(semaphore));
    OK(sem_unlink(name));
    return semaphore;
}

int main(void)
{
    static sem_t *semaphores[MANY];
    CHECK(sem_open("/odtest-there-is-none", 0) == SEM_FAILED && errno == ENOENT,
          "a semaphore that is not there");
    char *block = malloc(BYTES);
    CHECK(block, "malloc");
    od_fill(block, BYTES, 2);
    od_freeze();
    od_run_child(post, open_new(MANY));
    od_verify(block, BYTES, 2, "before it is freed");
    uintptr_t from = (uintptr_t)block, to = from + BYTES;
    free(block);
    int inside = 0, opened = 0;
    while (inside < COUNT && opened < MANY) {
        int value = -1, i = opened++;
        uintptr_t at = (uintptr_t)(semaphores[i] = open_new(i));
        if (at < from || at >= to)
            continue;
        inside++;
        int answer = madvise((void *)at, OD_PAGE, MADV_DONTNEED);
        CHECK(answer == 0, "madvise: %s", strerror(errno));
        OK(sem_getvalue(semaphores[i], &value));
        CHECK(value == 3, "semaphore %d holds %d", i, value);
        od_run_child(post, semaphores[i]);
        OK(sem_getvalue(semaphores[i], &value));
        CHECK(value == 4, "semaphore %d holds %d: it is not shared any more", i, value);
    }
    CHECK(inside > 0, "no semaphore lies where the block was");
    for (int i = 0; i < opened; i++)
        OK(sem_close(semaphores[i]));
    return od_done();
}
