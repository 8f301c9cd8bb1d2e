/* A program of the soak: changes its memory at random, forks children that check and change it, and
 * knows at every moment what each byte must be.
 *
 *   churn SEED SECONDS THREADS TIMER    exit status 1 and a line "WRONG ..." on stderr: a byte was
 *                                       wrong, or a call failed that must not
 *
 * Descriptor 1 gets a byte for every step: who reads it sees whether the program is stuck. The
 * order of changes follows from SEED alone; what threads, signals and limits meet does not. */
#include "changes.h"
#include "lanes.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define CHILDREN 3

extern char **environ;
static pid_t children[CHILDREN];
static int (*hints[3])(void); /* freeze, refreeze, thaw; nothing without the runtime */

static void beat(void)
{
    if (write(1, ".", 1) != 1 && errno != EAGAIN && errno != EINTR)
        _exit(0); /* nobody looks any more */
}

static void hint(void)
{
    size_t which = below(8);
    if (which < 3 && hints[which] && (which < 2 || one_in(4)))
        hints[which]();
}

/* A soft limit is drawn in; the next call lets it out again. What then fails may fail. */
static void limit(void)
{
    static struct rlimit before;
    static const int kinds[] = {RLIMIT_NOFILE,  RLIMIT_AS,    RLIMIT_FSIZE,
                                RLIMIT_MEMLOCK, RLIMIT_NPROC, RLIMIT_STACK};
    if (limited >= 0) {
        setrlimit(limited, &before);
        limited = -1;
        return;
    }
    int kind = kinds[below(sizeof kinds / sizeof kinds[0])];
    if (getrlimit(kind, &before) != 0)
        return;
    struct rlimit now = before;
    now.rlim_cur = kind == RLIMIT_NOFILE ? below(30) : kind == RLIMIT_AS ? (150 + below(500)) * MB
                 : kind == RLIMIT_STACK ? MB : below(64) * 4096;
    if (now.rlim_cur < before.rlim_cur && setrlimit(kind, &now) == 0)
        limited = kind;
}

/* A child that was killed from outside is no error; one that found a wrong byte is. */
static void ended(int slot, int status)
{
    if (WIFEXITED(status) ? WEXITSTATUS(status) != 0 : WTERMSIG(status) != SIGKILL)
        wrong("child %d ended with status %#x", (int)children[slot], status);
    children[slot] = 0;
}

static void collect(int slot, int waits)
{
    int status;
    if (children[slot] == 0)
        return;
    if (waits && one_in(4))
        kill(children[slot], SIGKILL);
    pid_t got;
    do
        got = waitpid(children[slot], &status, waits ? 0 : WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        wrong("waitpid(%d): %s", (int)children[slot], strerror(errno));
    if (got > 0)
        ended(slot, status);
}

/* A program is executed: by vfork or posix_spawn. */
static void execute(void)
{
    char *words[] = {"/bin/true", NULL};
    int status = 0;
    pid_t pid;
    if (one_in(2)) {
        if (posix_spawn(&pid, words[0], NULL, NULL, words, environ) != 0)
            return;
    } else {
        pid = vfork();
        if (pid == 0) {
            execv(words[0], words);
            _exit(0);
        }
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
}

static void fork_one(int slot);

static void live(long steps)
{
    for (; steps > 0; steps--) {
        step++;
        beat();
        change();
    }
}

static void child(void)
{
    memset(children, 0, sizeof children);
    become_child();
    verify_lanes("at the fork");
    verify_all("at the fork");
    verify_blocks("at the fork");
    live(1 + below(12));
    hint();
    if (depth == 1 && one_in(3)) {
        fork_one(0);
        live(1 + below(6));
        verify_some("beside a grandchild");
        collect(0, 1);
    }
    live(below(12));
    verify_lanes("a child's end");
    verify_all("a child's end");
    verify_blocks("a child's end");
    _exit(0);
}

static void fork_one(int slot)
{
    uint64_t fate = random_word() | 1;
    pid_t pid = fork();
    if (pid == 0) {
        chance = fate;
        child();
    }
    if (pid > 0)
        children[slot] = pid;
}

static void parent(void)
{
    live(1 + below(8));
    if (one_in(3))
        hint();
    if (one_in(6) && limited < 0)
        execute();
    if (one_in(20))
        limit();
    int slot = (int)below(CHILDREN);
    collect(slot, 1);
    fork_one(slot);
    for (int i = 0; i < CHILDREN; i++)
        collect(i, 0);
    verify_some("the parent");
    verify_lanes("the parent");
    verify_blocks("the parent");
}

static void start(char **words)
{
    static const char *const names[] = {"odfork_freeze", "odfork_refreeze", "odfork_thaw"};
    seed = strtoull(words[1], NULL, 10);
    chance = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    pages = (8 + below(89)) * MB / PAGE;
    arena = ARENA;
    if (!map_fresh(0, pages))
        wrong("mmap of the arena: %s", strerror(errno));
    for (size_t page = 0; page < pages; page++)
        if (page / WINDOW % 3 != 2 || one_in(3))
            write_page(page);
    for (int i = 0; one_in(2) && i < 3; i++)
        hints[i] = (int (*)(void))dlsym(RTLD_DEFAULT, names[i]);
    mallopt(M_MMAP_THRESHOLD, one_in(2) ? 128 * 1024 : 8 * 1024 * 1024);
    struct sigaction action = {.sa_handler = lane_signal, .sa_flags = SA_RESTART};
    sigaddset(&action.sa_mask, SIGALRM); /* the lane has one writer */
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    lanes_start(atoi(words[3]), atoi(words[4]));
}

int main(int count, char **words)
{
    struct rlimit none = {0, 0};
    struct timespec now, begin;
    if (count != 5) {
        fprintf(stderr, "usage: churn SEED SECONDS THREADS TIMER\n");
        return 2;
    }
    setrlimit(RLIMIT_CORE, &none);
    start(words);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        parent();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec < atol(words[2]));
    for (int i = 0; i < CHILDREN; i++)
        collect(i, 1);
    verify_all("the end");
    exit(0);
}
