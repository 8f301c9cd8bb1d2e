/* Was this process forked since it last looked? Only those who fork by libc can be asked. */
#include "wish.h"
#include <pthread.h>
#include <sys/resource.h>

static int counted;
static void count(void) { counted++; }

int main(void)
{
    struct rusage before, after;
    char *wiped = map(PAGE, MAP_PRIVATE, -1);
    *wiped = 1;
    EXPECT(madvise(wiped, PAGE, MADV_WIPEONFORK) == 0 && pthread_atfork(count, NULL, NULL) == 0);
    getrusage(RUSAGE_SELF, &before);
    long tasks = number("/proc/self/status", "Threads:");
    pid_t child = (pid_t)syscall(SYS_fork); /* a library's own system call */
    if (child == 0)
        _exit(*wiped == 0); /* the child can know ... */
    int status;
    waitpid(child, &status, 0);
    getrusage(RUSAGE_SELF, &after);
    printf("forks: 1; seen by pthread_atfork: %d\n", counted);
    printf("the child %s know; in the parent nothing changed: page %d, threads %ld to %ld\n",
           WEXITSTATUS(status) ? "can" : "cannot", *wiped, tasks,
           number("/proc/self/status", "Threads:"));
    EXPECT(counted == 0 && *wiped == 1 && WEXITSTATUS(status) == 1);
    return 0;
}
