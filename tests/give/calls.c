/* What one madvise(MADV_DONTNEED) costs after a fork: every other part of PART KB of a heap of MB
 * megabytes is given back, in an order of addresses or at random, by the parent or by a child.
 *
 *   calls MB PART parent|child alone|thread inorder|random
 *
 * Prints one line: nanoseconds of processor time a call (the median of stretches of 50 calls), the
 * same to touch a part again, and the mappings at the end. Exit status 1: a byte was wrong. */
#define _GNU_SOURCE
#include "mappings.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STRETCH 50

static char *heap;
static size_t part, parts, *order;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void give_back(char *at) { madvise(at, part, MADV_DONTNEED); }
static void touch(char *at)
{
    for (size_t i = 0; i < part; i += 4096)
        at[i] = 2;
}

static double median(void (*act)(char *))
{
    size_t stretches = parts / STRETCH;
    double *cost = malloc(stretches * sizeof *cost);
    for (size_t s = 0; s < stretches; s++) {
        double begin = now();
        for (size_t i = s * STRETCH; i < (s + 1) * STRETCH; i++)
            act(heap + 2 * order[i] * part);
        cost[s] = (now() - begin) / STRETCH;
    }
    qsort(cost, stretches, sizeof *cost, by_size);
    double middle = cost[stretches / 2];
    free(cost);
    return middle;
}

static void check(char first)
{
    for (size_t i = 0; i < parts; i++)
        for (size_t at = 0; at < part; at += 512) {
            char *here = heap + 2 * i * part + at;
            if (here[0] != (at % 4096 ? 0 : first) || here[part] != 1) {
                fprintf(stderr, "WRONG byte in part %zu\n", i);
                _exit(1);
            }
        }
}

static void run(void)
{
    double given = median(give_back);
    check(0);
    double touched = median(touch);
    check(2);
    printf("%.0f %.0f %ld\n", given, touched, mappings());
    fflush(stdout);
}

static void *idle(void *argument)
{
    pause();
    return argument;
}

int main(int words, char **word)
{
    if (words < 6)
        return 2;
    part = (size_t)atoi(word[2]) << 10;
    parts = ((size_t)atoi(word[1]) << 20) / part / 2 / STRETCH * STRETCH;
    heap = mmap(0, 2 * parts * part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    order = malloc(parts * sizeof *order);
    memset(heap, 1, 2 * parts * part);
    for (size_t i = 0; i < parts; i++)
        order[i] = i;
    for (size_t i = parts - 1; i > 0 && word[5][0] == 'r'; i--) {
        size_t other = (size_t)rand() % (i + 1), was = order[i];
        order[i] = order[other];
        order[other] = was;
    }
    int status;
    if (fork() == 0)
        _exit(0);
    wait(&status);
    pthread_t thread;
    int with_thread = word[4][0] == 't', in_child = word[3][0] == 'c';
    pid_t child = in_child ? fork() : 0;
    if (child == 0) {
        for (size_t i = 0; i < 2 * parts * part; i += 4096)
            if (heap[i] != 1)
                _exit(1);
        if (with_thread)
            pthread_create(&thread, NULL, idle, NULL);
        run();
        if (in_child)
            _exit(0);
        return 0;
    }
    wait(&status);
    return status != 0;
}
