/* Content that knows where it belongs: every word of a page depends on the page's number, its
 * version, and its place. */
#ifndef PAGES_H
#define PAGES_H
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define WORDS (PAGE / 8)

static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ull;
    return x ^ x >> 32;
}

/* Half of a page is noise, half is one word: it compresses to about a half. */
static inline uint64_t word_of(uint64_t page, uint64_t version, unsigned at)
{
    uint64_t key = mix(page * 0x100000001B3ull + version);
    return at < WORDS / 2 ? mix(key + at) : key;
}

static inline void fill_page(uint64_t *to, uint64_t page, uint64_t version)
{
    for (unsigned at = 0; at < WORDS; at++)
        to[at] = version ? word_of(page, version, at) : 0;
}

static inline void wrong(const char *what, uint64_t page, uint64_t version, unsigned at,
                         uint64_t found)
{
    fprintf(stderr, "WRONG %s: page %lu version %lu word %u: %lx instead of %lx\n", what, page,
            version, at, found, version ? word_of(page, version, at) : 0);
    abort();
}

static inline void check_page(const char *what, const uint64_t *from, uint64_t page,
                              uint64_t version)
{
    for (unsigned at = 0; at < WORDS; at++) {
        uint64_t found = ((const volatile uint64_t *)from)[at];
        if (found != (version ? word_of(page, version, at) : 0))
            wrong(what, page, version, at, found);
    }
}

/* A few words only: for speed. */
static inline void peek_page(const char *what, const uint64_t *from, uint64_t page,
                             uint64_t version)
{
    static const unsigned some[] = {0, 1, WORDS / 2 - 1, WORDS / 2, WORDS - 1};
    for (unsigned n = 0; n < sizeof some / sizeof *some; n++) {
        uint64_t found = ((const volatile uint64_t *)from)[some[n]];
        if (found != (version ? word_of(page, version, some[n]) : 0))
            wrong(what, page, version, some[n], found);
    }
}

static inline uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return mix(*state);
}

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline void *paged(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(3);
    }
    return at;
}

/* Whether the mapping at this address is the pager's. */
static inline int is_paged(const void *at)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    const char *which = getenv("ODFORK_PAGE_MEMORY");
    /* There all memory is paged, and no mapping shows it. */
    int found = which && !strcmp(which, "any");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && (unsigned long)at >= start &&
            (unsigned long)at < end)
            found |= strstr(line, "odfork-page-backing") != NULL;
    }
    if (maps)
        fclose(maps);
    return found;
}

static inline void need_paged(const void *at)
{
    if (!is_paged(at)) {
        fprintf(stderr, "NOT PAGED: the mapping was left to the kernel\n");
        exit(4);
    }
}

/* A line that somebody says who has done something to this program. */
static inline void wait_for_line(void)
{
    char byte = 0;
    while (byte != '\n' && read(0, &byte, 1) == 1)
        ;
}

/* Before the program proper: with ODFORK_TEST_LATER it gets its pager now, not when it began. */
__attribute__((constructor)) static void wait_to_be_paged(void)
{
    if (getenv("ODFORK_TEST_LATER")) {
        unsetenv("ODFORK_TEST_LATER");
        if (write(1, "ready\n", 6) == 6)
            wait_for_line();
    }
}

/* A child that no wrapper of any function hears of. */
static inline pid_t raw_fork(void)
{
#ifdef __x86_64__
    long child = SYS_fork;
    __asm__ volatile("syscall" : "+a"(child) : : "rcx", "r11", "memory");
    return (pid_t)child;
#else
    return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
}

#endif
