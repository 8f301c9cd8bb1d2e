// odtest: expect=froze timeout=120 mem=96 live=no slices=no
/*
 * A thread goes on as soon as memory has moved, and makes a copy of the process at once, past the
 * C library's fork() or by one of its functions that fork by themselves. In the copy what is given
 * up of the memory that has moved is zeros. A block that the thread enlarges then is memory of its
 * own, too: it never grows into a file.
 */
#include "proc_region.h"
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { WAYS = 4, ROUNDS = 24, GAP_NS = 1000000 };
#define BYTES (16 * OD_MB)
#define SHORT (1600 << 10)
#define LONG (6 * OD_MB)

static _Atomic(char *) region;
static atomic_int over, enlarged;
/* Held while a copy is made: it needs the region. */
static pthread_mutex_t copying = PTHREAD_MUTEX_INITIALIZER;
static char *block, stack[65536];

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* In the copy. */
static int give_up(void *at)
{
    char *from = (char *)at + 8 * OD_MB;
    if (madvise(from, 16 * OD_PAGE, MADV_DONTNEED))
        _exit(2);
    for (size_t i = 0; i < 16 * OD_PAGE; i += 512)
        if (from[i])
            _exit(1);
    _exit(0);
}

static pid_t copy(int way, char *at, int *terminal)
{
    static pid_t (*fork_only)(void);
    static pid_t (*fork_terminal)(int *, char *, void *, void *);
    if (!fork_only) {
        fork_only = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
        fork_terminal = (pid_t(*)(int *, char *, void *, void *))dlsym(RTLD_DEFAULT, "forkpty");
    }
    pid_t pid;
    if (way == 1 && fork_only)
        pid = fork_only();
    else if (way == 2 && fork_terminal)
        pid = fork_terminal(terminal, NULL, NULL, NULL);
    else if (way == 3)
        return clone(give_up, stack + sizeof stack, SIGCHLD, at);
    else
        pid = (pid_t)syscall(OD_FORK_CALL);
    if (pid == 0)
        give_up(at);
    return pid;
}

static int is_of_file(const char *at)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps, "maps: %s", strerror(errno));
    unsigned long start, end, inode = 0;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &start, &end, &inode) == 3 &&
            (unsigned long)at >= start && (unsigned long)at < end)
            break;
    fclose(maps);
    return inode != 0;
}

/* Writes all the time, so that it is held there; a pause tells that it was. */
static void *go_on(void *unused)
{
    int way = 0;
    for (uint64_t before = now(); !over; before = now()) {
        if (now() - before < GAP_NS)
            continue;
        if (!enlarged) {
            block = realloc(block, LONG);
            /* Untouched, it is not frozen yet. */
            CHECK(!is_of_file(block + SHORT + 2 * OD_PAGE), "the block has grown into a file");
            memset(block + SHORT, 6, LONG - SHORT);
            enlarged = 1;
        }
        int status, terminal = -1;
        pthread_mutex_lock(&copying);
        char *at = region;
        pid_t pid = at ? copy(way++ % WAYS, at, &terminal) : 0;
        pthread_mutex_unlock(&copying);
        if (!at)
            continue;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid, "a copy: %s", strerror(errno));
        if (terminal >= 0)
            close(terminal);
        CHECK(status == 0, "copy %d (way %d) ended with %#x", way - 1, (way - 1) % WAYS, status);
    }
    return unused;
}

int main(void)
{
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    block = malloc(SHORT);
    memset(block, 5, SHORT);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, go_on, NULL) == 0, "pthread_create");
    for (int round = 0; round < ROUNDS; round++) {
        char *at = od_map(BYTES);
        od_small_pages(at, BYTES);
        memset(at, 1 + round, BYTES);
        region = at;
        pid_t pid = OK(fork());
        if (pid == 0)
            _exit(0);
        od_join(pid);
        usleep(2000);
        pthread_mutex_lock(&copying);
        region = NULL;
        pthread_mutex_unlock(&copying);
        OK(munmap(at, BYTES));
    }
    over = 1;
    CHECK(pthread_join(thread, NULL) == 0, "pthread_join");
    for (size_t i = 0; enlarged && i < LONG; i += 64)
        CHECK(block[i] == (i < SHORT ? 5 : 6), "byte %zu of the block: %d", i, block[i]);
    free(block);
    return od_done();
}
