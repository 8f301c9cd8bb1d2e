// odtest: expect=any timeout=90 mem=100
/*
 * A process ends in the middle of a freeze: killed, or replaced by another program that a second
 * thread executes. Whoever looks after its children then, a subreaper or the new program, finds
 * those it forked, and none that did work for it to the end: a helper ends with whom it helps.
 */
#include "proc_region.h"
#include <pthread.h>
#include <sys/prctl.h>

/* EARLY: killed as the helper begins, rather than while it moves memory */
enum { ROUNDS = 4, EARLY = 40, OWN = 7, EXECS = 12 };
static const size_t BYTES = 32 * OD_MB;

static _Noreturn void become(const char *self, const char *what)
{
    char *words[] = { (char *)self, (char *)what, NULL };
    /* each piece of a freeze takes so many milliseconds more */
    setenv("ODFORK_FAULT", "slow:300", 1);
    execv("/proc/self/exe", words);
    _exit(99);
}

static void fork_on(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(OWN);
}

/* Has forks to make for seconds; tells before the first. */
static _Noreturn void slow(void)
{
    region_new(BYTES, 3);
    CHECK(write(1, "!", 1) == 1, "write");
    fork_on();
    for (;;)
        pause();
}

static void killed(useconds_t after)
{
    int ends[2], status;
    char byte;
    OK(pipe(ends));
    pid_t pid = OK(fork());
    if (pid == 0) {
        dup2(ends[1], 1);
        become("slow", "slow");
    }
    close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 1, "it did not begin");
    close(ends[0]);
    usleep(after);
    OK(kill(pid, SIGKILL));
    for (pid_t got; (got = waitpid(-1, &status, __WALL)) > 0;)
        CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == OWN,
              "child %d, of %d, ended with %#x", (int)got, (int)pid, (unsigned)status);
}

static void *forks(void *region)
{
    for (size_t round = 0;; round++) {
        region_touch(region, BYTES, 3, round);
        fork_on();
    }
    return NULL;
}

/* Children of this number of programs executed before are here: each ended as it should. */
static void executed(char **words)
{
    int status, left = atoi(words[2]);
    pthread_t thread;
    char number[16];
    for (pid_t got; (got = waitpid(-1, &status, __WALL)) > 0;)
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == OWN,
              "child %d of the program before ended with %#x", (int)got, (unsigned)status);
    if (left == 0)
        exit(0);
    CHECK(pthread_create(&thread, NULL, forks, region_new(BYTES, 3)) == 0, "no thread");
    usleep(20000 + (useconds_t)(left * 7919 % 90000));
    snprintf(number, sizeof number, "%d", left - 1);
    char *next[] = { words[0], words[1], number, NULL };
    execv("/proc/self/exe", next);
    FAIL("execv: %s", strerror(errno));
}

int main(int count, char **words)
{
    if (count == 2)
        slow();
    if (count == 3)
        executed(words);
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    for (int round = 0; round < ROUNDS; round++)
        killed(60000 + (useconds_t)round * 20000);
    for (int round = 0; round < EARLY; round++)
        killed((useconds_t)round * 150);
    pid_t pid = OK(fork());
    if (pid == 0)
        OK(execl("/proc/self/exe", "executed", "executed", "12", NULL));
    od_join(pid);
    return od_done();
}
