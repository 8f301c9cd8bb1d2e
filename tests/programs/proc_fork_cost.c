// odtest: modes=stock,huge,small,user,auto expect=any mem=64
/*
 * What the library adds to each fork of a program that is too small to gain anything: of a child
 * that ends at once, and of one that makes the calls of a server's request. Page faults
 * of parent and child are counted, not timed: this program executes itself with the library
 * preloaded and without, once with FORKS forks and once with none. Stock has no library and
 * compares a thing with itself.
 */
#include "proc_cost.h"
#include <limits.h>
#include <poll.h>

/* Of a page that the library writes in the parent, and of its code in a child: 2.03. The calls of
 * a request, code of theirs, the page where a call is announced: 5.03. One page more is above. */
enum { FORKS = 100, ROUNDS = 20 };
static const double MOST_FAULTS = 2.7, MOST_SERVING = 5.7;

/* What a server does for a request, as far as the library stands before it. */
static void serve(void)
{
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct pollfd waits = {.fd = file, .events = POLLIN};
    fcntl(file, F_GETFD);
    poll(&waits, 1, 1);
    void *page = mmap(NULL, OD_PAGE, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED || munmap(page, OD_PAGE) || close(file))
        _exit(97);
}

static int fork_often(int forks, int serves)
{
    for (int i = 0; i < forks; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            if (serves)
                serve();
            _exit(0);
        }
        if (waitpid(pid, &status, 0) != pid || status != 0)
            return 99;
    }
    return 0;
}

/* Minor faults of a life with so many forks, and of its children. */
static long life(int with, const char *forks, const char *serves)
{
    struct rusage used;
    int status;
    char *argv[] = { "cost", (char *)forks, (char *)serves, NULL };
    pid_t pid = vfork();
    if (pid == 0) {
        execve("/proc/self/exe", argv, settings(with));
        _exit(98);
    }
    CHECK(wait4(pid, &status, 0, &used) == pid && status == 0, "executed: status %#x",
          (unsigned)status);
    return used.ru_minflt;
}

/* Minor faults of FORKS forks, the fewest of several lives: addresses are random, a fault maps
 * what lies in the same 64 KB, and leaves out what the kernel holds locked at the time. */
static long faults(int with, const char *serves)
{
    long fewest = LONG_MAX;
    char forks[16];
    snprintf(forks, sizeof forks, "%d", FORKS);
    for (int i = 0; i < ROUNDS; i++) {
        long seen = life(with, forks, serves) - life(with, "0", serves);
        if (seen < fewest)
            fewest = seen;
    }
    return fewest;
}

static void compare(const char *what, const char *serves, double most)
{
    long with = faults(1, serves), without = faults(0, serves);
    CHECK(without > 2 * FORKS, "%ld faults in %d forks: nothing was counted", without, FORKS);
    CHECK(with - without <= most * FORKS,
          "%s: %.2f faults a fork with the library, %.2f without: want at most %.1f more", what,
          (double)with / FORKS, (double)without / FORKS, most);
}

int main(int count, char **words)
{
    if (count > 2)
        return fork_often(atoi(words[1]), atoi(words[2]));
    /* Children that look names up read pages by how the names happen to be aligned. */
    OK(setenv("LD_BIND_NOW", "1", 1));
    compare("a child that ends", "0", MOST_FAULTS);
    compare("a child that serves", "1", MOST_SERVING);
    return od_done();
}
