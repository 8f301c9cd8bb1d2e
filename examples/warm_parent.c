/* warm_parent.c - loads a table once, then answers every question in a child of its own.
 *
 * From the repository, without installing:
 *     make build
 *     cc -O2 -I crates/odfork-preload/include examples/warm_parent.c -o target/warm_parent -L
 *     target/release -lodfork LD_LIBRARY_PATH=target/release target/warm_parent
 * Installed: cc -O2 warm_parent.c -o warm_parent $(pkg-config --cflags --libs odfork)
 */
#include <odfork.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROWS ((size_t)64 << 20) /* 512 MB of 8-byte rows */

static uint64_t *table;

static double microseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Forks a child that changes a few rows and looks at others; returns the time fork() took in the
 * parent. */
static double ask(size_t question)
{
    double begin = microseconds();
    pid_t pid = odfork_fork(); /* fork() does the same */
    double time = microseconds() - begin;
    if (pid < 0) {
        perror("fork");
        exit(1);
    }
    if (pid == 0) {
        table[question] = 0; /* the child's own */
        _exit(table[question + 1] == (question + 1) * 3 ? 0 : 1);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0 || table[question] != question * 3) {
        fprintf(stderr, "question %zu: wrong answer\n", question);
        exit(1);
    }
    return time;
}

static double ask_many(void)
{
    double sum = 0;
    for (size_t i = 0; i < 20; i++)
        sum += ask(i * 1000003);
    return sum / 20;
}

int main(void)
{
    table = malloc(ROWS * sizeof *table);
    if (!table) {
        perror("malloc");
        return 1;
    }
    for (size_t i = 0; i < ROWS; i++)
        table[i] = i * 3;

    /* after some of these the library would freeze by itself */
    printf("plain:  %8.0f us, one fork\n", ask(0));
    double begin = microseconds();
    if (odfork_freeze() != 0) {
        printf("not frozen (%s); forks stay plain\n", odfork_reason());
        return 0;
    }
    printf("freeze: %8.0f us, once\n", microseconds() - begin);
    printf("frozen: %8.0f us a fork\n", ask_many());

    memset(table, 0, 64 << 20); /* the parent goes on working ... */
    for (size_t i = 0; i < (64 << 20) / sizeof *table; i++)
        table[i] = i * 3;
    printf("dirty:  %8.0f us a fork\n", ask_many());
    if (odfork_refreeze() == 0) /* ... and puts what it wrote back into the image */
        printf("folded: %8.0f us a fork\n", ask_many());

    struct odfork_stats stats;
    odfork_stats(&stats, sizeof stats);
    printf("%llu forks, %llu MB frozen\n", (unsigned long long)stats.forks,
           (unsigned long long)(stats.frozen_bytes >> 20));
    return 0;
}
