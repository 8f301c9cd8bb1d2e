/* Records the cost of plain fork() of a process that this program makes up, one JSON line per fork.
 *
 * Owns: four memory patterns (static, small, growing, writer) and the once pattern, and the
 * measuring. Does not own: any decision; this is the process as it is without the engine.
 * One child is kept alive between two forks, so that a page the parent wrote since the last fork is
 * private again in /proc/self/smaps_rollup while every other page is shared with that child.
 *
 *   cc -O2 -o record record.c && ./record PATTERN > PATTERN.jsonl
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

struct pattern {
    const char *name;
    size_t start_mb;   /* memory touched before the first fork */
    size_t grow_mb;    /* memory added before each later fork */
    int forks;
    int write_one_in;  /* before each later fork one page in so many is written; 0 = none */
};

static const struct pattern patterns[] = {
    {"static-1g", 1024, 0, 100, 0},
    {"small-64m", 64, 0, 6, 20},
    {"growing-to-1g", 16, 8, 125, 32},
    {"writer-512m", 512, 0, 120, 16},
    {"once-1g", 1024, 0, 1, 0},
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void read_rollup(uint64_t *anon_bytes, uint64_t *private_dirty_bytes)
{
    char line[256];
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    unsigned long kb;
    if (!f) {
        perror("record: /proc/self/smaps_rollup");
        exit(1);
    }
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "Anonymous: %lu", &kb) == 1) *anon_bytes = kb * 1024u;
        if (sscanf(line, "Private_Dirty: %lu", &kb) == 1) *private_dirty_bytes = kb * 1024u;
    }
    fclose(f);
}

static pid_t fork_waiting_child(int *release_fd, uint64_t *plain_ns)
{
    int ends[2];
    char byte;
    if (pipe(ends)) exit(1);
    uint64_t before = now_ns();
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) < 0);
    }
    *plain_ns = now_ns() - before;
    close(ends[0]);
    *release_fd = ends[1];
    return child;
}

static void write_some(char *memory, size_t pages, int one_in, unsigned *seed)
{
    for (size_t i = 0; one_in && i < pages / (size_t)one_in; i++)
        memory[(size_t)rand_r(seed) % pages * PAGE]++;
}

static void record(const struct pattern *p)
{
    size_t limit = (p->start_mb + p->grow_mb * (size_t)p->forks) << 20;
    size_t used = p->start_mb << 20;
    char *memory = mmap(NULL, limit, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint64_t anon = 0, previous_anon = 0, private_dirty = 0, plain_ns = 0;
    unsigned seed = 12345;
    int release_fd = -1;
    pid_t child = -1;
    if (memory == MAP_FAILED) exit(1);
    memset(memory, 1, used);
    for (int i = 0; i < p->forks; i++) {
        uint64_t dirty = 0;
        read_rollup(&anon, &private_dirty);
        if (child > 0) {
            uint64_t grown = anon > previous_anon ? anon - previous_anon : 0;
            dirty = private_dirty > grown ? (private_dirty - grown) / PAGE : 0;
            close(release_fd);
            waitpid(child, NULL, 0);
        }
        previous_anon = anon;
        child = fork_waiting_child(&release_fd, &plain_ns);
        printf("{\"plain_ns\":%llu,\"anon_bytes\":%llu,\"dirty_pages\":%llu}\n",
               (unsigned long long)plain_ns, (unsigned long long)anon, (unsigned long long)dirty);
        write_some(memory, used / PAGE, p->write_one_in, &seed);
        memset(memory + used, 1, p->grow_mb << 20);
        used += p->grow_mb << 20;
    }
    close(release_fd);
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, malloc(1 << 17), _IOFBF, 1 << 17); /* one flush at exit: no child may print */
    for (size_t i = 0; argc == 2 && i < sizeof patterns / sizeof *patterns; i++)
        if (!strcmp(argv[1], patterns[i].name)) {
            record(&patterns[i]);
            return 0;
        }
    fprintf(stderr, "usage: record PATTERN; PATTERN is one of:");
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        fprintf(stderr, " %s", patterns[i].name);
    fprintf(stderr, "\n");
    return 2;
}
