/* What a process of the soak expects of its memory, and what it says when that is wrong.
 *
 * An arena of pages, each with a tag: all words of a page follow from its tag, and the tag names
 * the process that wrote it. So a wrong page tells whose content it shows. The tables are below
 * 1 MB, which the runtime leaves alone: they are not moved together with what they describe. */
#ifndef SOAK_MODEL_H
#define SOAK_MODEL_H

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define MB ((size_t)1 << 20)
#define MOST_PAGES (96 * MB / PAGE)
#define ARENA ((char *)0x100000000000) /* where the kernel puts nothing of its own into holes */

enum access { UNMAPPED, NO_ACCESS, READS, WRITES };

/* What else is true of a page: it may turn to zeros at any time; it is locked; a child finds
 * zeros there, or nothing. */
enum property { FREED = 1, LOCKED = 2, WIPED = 4, UNSHARED = 8 };

static uint64_t tags[MOST_PAGES]; /* 0: zeros */
static unsigned char accesses[MOST_PAGES], properties[MOST_PAGES];
static size_t pages; /* of the arena in use */
static char *arena;
static uint64_t chance, writes;
static unsigned long long seed;
static long step;
static int depth; /* 0: the first process, 1: its children */

static char *at(size_t page) { return arena + page * PAGE; }

static uint64_t random_word(void)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance * UINT64_C(0x2545f4914f6cdd1d);
}

static size_t below(size_t n) { return n ? (random_word() >> 20) % n : 0; }
static int one_in(size_t n) { return below(n) == 0; }

/* Ends the process with what is wrong; status 1 makes every parent end the same way. */
__attribute__((format(printf, 1, 2), noreturn)) static void wrong(const char *format, ...)
{
    char text[500];
    int used = snprintf(text, sizeof text, "WRONG seed %llu depth %d step %ld pid %d: ", seed,
                        depth, step, (int)getpid());
    va_list list;
    va_start(list, format);
    used += vsnprintf(text + used, sizeof text - used - 1, format, list);
    va_end(list);
    if (used > (int)sizeof text - 2)
        used = sizeof text - 2;
    text[used++] = '\n';
    if (write(2, text, used) != used)
        _exit(3);
    _exit(1);
}

static uint64_t word_of(uint64_t tag, size_t i)
{
    return tag ? tag + i * UINT64_C(0x9e3779b97f4a7c15) : 0;
}

static void fill(void *memory, size_t bytes, uint64_t tag)
{
    uint64_t *word = memory;
    for (size_t i = 0; i < bytes / 8; i++)
        word[i] = word_of(tag, i);
}

/* Index of the first wrong word, or -1. */
static long wrong_word(const void *memory, size_t bytes, uint64_t tag)
{
    const volatile uint64_t *word = memory;
    for (size_t i = 0; i < bytes / 8; i++)
        if (word[i] != word_of(tag, i))
            return (long)i;
    return -1;
}

static uint64_t new_tag(void) { return (uint64_t)getpid() << 40 | ++writes << 8 | 1; }

static void write_page(size_t page)
{
    if (accesses[page] != WRITES)
        return;
    tags[page] = new_tag();
    properties[page] &= ~FREED;
    fill(at(page), PAGE, tags[page]);
}

static void verify_page(size_t page, const char *when)
{
    if (accesses[page] < READS)
        return;
    uint64_t tag = tags[page];
    long i = wrong_word(at(page), PAGE, tag);
    if (i >= 0 && properties[page] & FREED) { /* the kernel may take it, but only all of it */
        tag = tags[page] = 0;
        i = wrong_word(at(page), PAGE, tag);
    }
    if (i >= 0)
        wrong("%s: page %zu (%p, access %d, properties %d) word %ld holds %#llx, want %#llx; "
              "word 0 holds %#llx, tag %#llx",
              when, page, (void *)at(page), accesses[page], properties[page], i,
              (unsigned long long)((uint64_t *)at(page))[i], (unsigned long long)word_of(tag, i),
              (unsigned long long)*(uint64_t *)at(page), (unsigned long long)tag);
}

static void verify_all(const char *when)
{
    for (size_t page = 0; page < pages; page++)
        verify_page(page, when);
}

/* Reading changes what is populated: most checks leave zeros alone. */
static void verify_some(const char *when)
{
    size_t stride = 1 + below(8);
    for (size_t page = below(stride); page < pages; page += stride)
        if (tags[page] || one_in(16))
            verify_page(page, when);
}

static void forget(size_t from, size_t count, enum access access)
{
    memset(tags + from, 0, count * sizeof tags[0]);
    memset(accesses + from, access, count);
    memset(properties + from, 0, count);
}

/* All alike, whatever may turn to zeros. */
static int all_alike(size_t from, size_t count)
{
    for (size_t page = from; page < from + count; page++)
        if (accesses[page] != accesses[from] || (properties[page] ^ properties[from]) & ~FREED)
            return 0;
    return 1;
}

static int none_is(size_t from, size_t count, enum access access, int property)
{
    for (size_t page = from; page < from + count; page++)
        if (accesses[page] == access || properties[page] & property)
            return 0;
    return 1;
}

/* What the kernel makes of the properties when a process forks. */
static void become_child(void)
{
    for (size_t page = 0; page < pages; page++) {
        if (properties[page] & UNSHARED)
            forget(page, 1, UNMAPPED);
        if (properties[page] & WIPED)
            tags[page] = 0;
        properties[page] &= ~LOCKED;
    }
    depth++;
}

#endif
