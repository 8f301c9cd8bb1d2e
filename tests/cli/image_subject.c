/* Memory to be saved. Prints "ready START END" and then works until its standard input ends: two
 * threads count, each in a page of its own, the second never ahead of the first. With an argument,
 * it forks that often before. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 64 << 20, PAGE = 4096, LAST = SIZE - PAGE };

static char *at;

static void *count(void *unused)
{
    _Atomic unsigned long *first = (void *)at, *second = (void *)(at + LAST);
    (void)unused;
    for (;;) {
        atomic_fetch_add(first, 1);
        atomic_fetch_add(second, 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return 1;
    /* Every third page stays untouched. */
    for (long page = 1; page < SIZE / PAGE - 1; page++)
        if (page % 3)
            memset(at + page * PAGE, (int)(page % 251 + 1), PAGE);
    for (int n = argc > 1 ? atoi(argv[1]) : 0; n > 0; n--) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0 || waitpid(child, NULL, 0) != child)
            return 1;
    }
    if (argc == 1) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, count, NULL) != 0)
            return 1;
    }
    printf("ready %lx %lx\n", (unsigned long)at, (unsigned long)at + SIZE);
    fflush(stdout);
    char end;
    return read(0, &end, 1) == 0 ? 0 : 1;
}
