/* An allocation-heavy program: blocks of 16 B to 256 KB live in a heap of MB megabytes. After a
 * first fork it frees and allocates in ROUNDS phases, each of which replaces a quarter of the
 * blocks, and forks before every EVERY-th of them (0: never again). Each block knows its content:
 * it is checked before it is freed, and by each child. With "trim", glibc gives back what it can
 * after each phase.
 *
 *   phases MB ROUNDS EVERY SEED [trim]
 *
 * Prints one line: microseconds of processor time after the first fork (of this process and of what
 * it waited for), the resident size in KB and the mappings at the end. Exit status 1: a byte was
 * wrong. */
#define _GNU_SOURCE
#include "mappings.h"
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct block {
    char *at;
    uint32_t size, tag;
};

static struct block *blocks;
static size_t count;
static uint64_t chance;

static uint32_t draw(void)
{
    chance = chance * UINT64_C(6364136223846793005) + 1442695040888963407;
    return chance >> 33;
}

/* Half of the bytes are in blocks above 16 KB: each power of two is as likely by bytes. */
static uint32_t some_size(void)
{
    static const uint16_t likely[15] = {16384, 8192, 4096, 2048, 1024, 512, 256, 128,
                                        64,    32,   16,   8,    4,    2,   1};
    uint32_t n = draw() % 32767, class = 0;
    while (class < 14 && n >= likely[class])
        n -= likely[class++];
    return (16u << class) + draw() % (16u << class);
}

static void fill(struct block *b)
{
    b->size = some_size();
    b->tag = draw();
    b->at = malloc(b->size);
    if (!b->at)
        exit(2);
    memset(b->at, (int)b->tag, b->size);
}

static void check(const struct block *b)
{
    unsigned char want = (unsigned char)b->tag;
    if (b->at[0] != (char)want || memcmp(b->at, b->at + 1, b->size - 1) != 0) {
        fprintf(stderr, "WRONG byte in a block of %u bytes at %p\n", b->size, (void *)b->at);
        _exit(1);
    }
}

/* A stretch of neighbours, as programs drop what they built together, or blocks at random. */
static void phase(int together)
{
    size_t quarter = count / 4, from = draw() % count;
    for (int pass = 0; pass < 2; pass++) {
        uint64_t before = chance;
        for (size_t i = 0; i < quarter; i++) {
            struct block *b = &blocks[together ? (from + i) % count : draw() % count];
            if (pass == 0 && b->at) {
                check(b);
                free(b->at);
                b->at = NULL;
            }
        }
        if (pass == 0)
            chance = before;
    }
    for (size_t i = 0; i < count; i++)
        if (!blocks[i].at)
            fill(&blocks[i]);
}

static void fork_one(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < count; i += 16)
            check(&blocks[i]);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        exit(1);
}

static long long spent(void)
{
    long long sum = 0;
    for (int who = RUSAGE_CHILDREN; who <= RUSAGE_SELF; who++) {
        struct rusage r;
        getrusage(who, &r);
        sum += (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000LL + r.ru_utime.tv_usec +
               r.ru_stime.tv_usec;
    }
    return sum;
}

static long resident_kb(void)
{
    long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2)
        exit(2);
    fclose(f);
    return resident * 4;
}

int main(int words, char **word)
{
    if (words < 5)
        return 2;
    int rounds = atoi(word[2]), every = atoi(word[3]), trims = words > 5;
    chance = strtoull(word[4], NULL, 10);
    if (trims)
        mallopt(M_TRIM_THRESHOLD, 64 * 1024);
    size_t room = (size_t)atoi(word[1]) << 20, used = 0, most = room / 64;
    blocks = calloc(most, sizeof *blocks);
    while (used < room && count < most) {
        fill(&blocks[count]);
        used += blocks[count++].size;
    }
    fork_one();
    long long begin = spent();
    for (int round = 1; round <= rounds; round++) {
        if (every && round % every == 0)
            fork_one();
        phase(round % 2);
        if (trims)
            malloc_trim(0);
    }
    begin = spent() - begin;
    for (size_t i = 0; i < count; i++)
        check(&blocks[i]);
    printf("%lld %ld %ld\n", begin, resident_kb(), mappings());
    return 0;
}
