/* What forking and giving memory back cost here: prints microseconds, "freeze N" "fork N" "give N"
 * on lines of their own, each a median. cost MEGABYTES [threads]. Under stock fork there is no line
 * "freeze". */
#include "../programs/odtest.h"
#include <pthread.h>
#include <time.h>

enum { FORKS = 15, CALLS = 100, PIECE = 64 << 10 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *list, int count)
{
    qsort(list, (size_t)count, sizeof *list, compare);
    return list[count / 2];
}

static void *sleeps(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static double fork_us(void)
{
    double took[FORKS];
    for (int i = 0; i < FORKS; i++) {
        double begin = now_us();
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        took[i] = now_us() - begin;
        CHECK(pid > 0, "fork: %s", strerror(errno));
        OK(waitpid(pid, NULL, 0));
    }
    return median(took, FORKS);
}

static double give_us(char *memory)
{
    double took[CALLS];
    for (int i = 0; i < CALLS; i++) {
        double begin = now_us();
        OK(madvise(memory + (size_t)i * 2 * PIECE, PIECE, MADV_DONTNEED));
        took[i] = now_us() - begin;
    }
    for (int i = 0; i < CALLS; i++)
        od_verify_zero(memory + (size_t)i * 2 * PIECE, PIECE, "given back");
    return median(took, CALLS);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1, "cost MEGABYTES [threads]");
    size_t bytes = (size_t)atoi(argv[1]) * OD_MB;
    char *memory = od_map(bytes);
    od_fill(memory, bytes, 1);
    pthread_t thread;
    if (argc > 2)
        CHECK(pthread_create(&thread, NULL, sleeps, NULL) == 0, "pthread_create");
    double begin = now_us();
    if (od_call(OD_FREEZE) == 0)
        printf("freeze %.0f\n", now_us() - begin);
    printf("fork %.0f\n", fork_us());
    printf("give %.2f\n", give_us(memory));
    return 0;
}
