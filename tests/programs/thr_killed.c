// odtest: expect=any timeout=60 mem=128
/*
 * A task that borrows the memory is killed at any moment, also while it holds the runtime's lock:
 * the process whose memory it is goes on. And a raw clone copies that lock while a thread holds it
 * and no memory is to be had: the child goes on. Whoever waits for such a lock waits for ever, with
 * all signals blocked.
 */
#include "odtest.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 8, COPIES = 16 };
static const size_t BYTES = 32 * OD_MB, LOCKED = 4 * OD_MB;
static char *region;
static atomic_long given_up;
static atomic_int stop;

static void *lock_and_unlock(void *unused)
{
    while (!stop) {
        mlock(region, LOCKED);
        munlock(region, LOCKED);
    }
    return unused;
}

static void copies_of_a_held_lock(void)
{
    struct rlimit before, none;
    pthread_t thread;
    OK(getrlimit(RLIMIT_AS, &before));
    CHECK(pthread_create(&thread, NULL, lock_and_unlock, NULL) == 0, "pthread_create");
    none = (struct rlimit){OD_MB, before.rlim_max};
    OK(setrlimit(RLIMIT_AS, &none));
    for (int i = 0; i < COPIES; i++) {
        usleep(1000);
        pid_t pid = OK(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
        if (pid == 0) {
            mlock(region, OD_PAGE);
            _exit(0);
        }
        od_join(pid);
    }
    OK(setrlimit(RLIMIT_AS, &before));
    stop = 1;
    pthread_join(thread, NULL);
}

/* Gives the region up page by page, which thaws it; no end but a signal. */
static int give_up(void *unused)
{
    for (size_t at = 0;; at = (at + OD_PAGE) % BYTES) {
        madvise(region + at, OD_PAGE, MADV_DONTNEED);
        mlock(region + at, OD_PAGE);
        munlock(region + at, OD_PAGE);
        given_up++;
    }
    return unused != NULL;
}

static void leave(void *unused) { (void)unused; }

static void borrowers_killed(void)
{
    char *stack = od_map(OD_MB);
    for (int round = 0; round < ROUNDS; round++) {
        int status;
        od_fill(region, BYTES, round);
        od_run_child(leave, NULL);
        given_up = 0;
        pid_t pid = OK(clone(give_up, stack + OD_MB, CLONE_VM | SIGCHLD, NULL));
        while (given_up < 10)
            sched_yield();
        usleep(137 * round + 50);
        OK(kill(pid, SIGKILL));
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "the task ended with %#x",
              (unsigned)status);
        od_run_child(leave, NULL);
        OK(munlock(region, BYTES));
        OK(madvise(region, BYTES, MADV_DONTNEED));
        od_verify_zero(region, BYTES, "given up");
    }
}

int main(void)
{
    region = od_map(BYTES);
    copies_of_a_held_lock();
    borrowers_killed();
    return od_done();
}
