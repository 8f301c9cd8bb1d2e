// odtest: expect=any mem=64
/*
 * What the library adds to each fork of a program that is too small to gain anything. Page faults
 * of parent and child are counted, not timed: this program executes itself with the library
 * preloaded and without, once with FORKS forks and once with none. Stock has no library and
 * compares a thing with itself.
 */
#include "proc_cost.h"

/* One for a page that the library writes in the parent; the library's code in a child takes the
 * place of faults that it has without the library. */
enum { FORKS = 200, ROUNDS = 15, MOST_FAULTS = 1 };

static int fork_often(int forks)
{
    for (int i = 0; i < forks; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        if (waitpid(pid, &status, 0) != pid || status != 0)
            return 99;
    }
    return 0;
}

/* Minor faults of a life with so many forks, and of its children. */
static long life(int with, const char *forks)
{
    struct rusage used;
    int status;
    char *argv[] = { "cost", (char *)forks, NULL };
    pid_t pid = vfork();
    if (pid == 0) {
        execve("/proc/self/exe", argv, settings(with));
        _exit(98);
    }
    CHECK(wait4(pid, &status, 0, &used) == pid && status == 0, "executed: status %#x",
          (unsigned)status);
    return used.ru_minflt;
}

/* Minor faults of FORKS forks, the middle one of several: addresses are random. */
static long faults(int with)
{
    long seen[ROUNDS];
    char forks[16];
    snprintf(forks, sizeof forks, "%d", FORKS);
    for (int i = 0; i < ROUNDS; i++)
        seen[i] = life(with, forks) - life(with, "0");
    return middle(seen, ROUNDS);
}

int main(int count, char **words)
{
    if (count > 1)
        return fork_often(atoi(words[1]));
    long with = faults(1), without = faults(0);
    CHECK(without > 2 * FORKS, "%ld faults in %d forks: nothing was counted", without, FORKS);
    CHECK(with - without <= MOST_FAULTS * FORKS,
          "%.2f page faults a fork with the library, %.2f without: want at most %d more",
          (double)with / FORKS, (double)without / FORKS, MOST_FAULTS);
    return od_done();
}
