/* One random change of the arena or the heap, made in memory and in the model alike.
 *
 * A call that must succeed on plain memory must succeed here: its failure is an error. Calls that
 * may lack memory, address space or a right are tried, and the model follows only their success. */
#ifndef SOAK_CHANGES_H
#define SOAK_CHANGES_H

#include "model.h"
#include <malloc.h>

#define WINDOW (2 * MB / PAGE)
#define BLOCKS 40
#define MOST_BLOCK (2 * MB)

static struct block {
    uint64_t *memory;
    size_t bytes;
    uint64_t tag;
} blocks[BLOCKS];

static int limited = -1; /* the resource whose soft limit is drawn in */

#define MUST(call)                                                                                 \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            wrong("%s of %zu pages from %zu: %s (limited: %d)", #call, count, from,                \
                  strerror(errno), limited);                                                       \
    } while (0)

/* Half of the ranges begin and end at 2 MB, some hang over by pages. */
static size_t range(size_t *count)
{
    size_t from = below(pages), length = 1 + below(one_in(3) ? 4 * WINDOW : 60);
    if (one_in(2)) {
        from = from / WINDOW * WINDOW;
        length = (length + WINDOW - 1) / WINDOW * WINDOW;
    }
    if (one_in(4) && from + 2 < pages)
        from += below(3);
    *count = length < pages - from ? length : pages - from;
    return from;
}

static void write_some(size_t from, size_t count)
{
    size_t run = 1 + below(40), gap = one_in(2) ? 0 : below(60);
    for (size_t page = from; page < from + count; page++)
        if ((page - from) % (run + gap) < run)
            write_page(page);
}

static int map_fresh(size_t from, size_t count)
{
    int more = one_in(4) ? MAP_NORESERVE : 0;
    if (mmap(at(from), count * PAGE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | more, -1, 0) == MAP_FAILED)
        return 0;
    forget(from, count, WRITES);
    return 1;
}

static void give_back(size_t from, size_t count)
{
    if (!none_is(from, count, UNMAPPED, LOCKED))
        return;
    if (one_in(3)) {
        MUST(madvise(at(from), count * PAGE, MADV_FREE));
        for (size_t page = from; page < from + count; page++)
            properties[page] |= FREED;
        return;
    }
    MUST(madvise(at(from), count * PAGE, MADV_DONTNEED));
    memset(tags + from, 0, count * sizeof tags[0]);
}

static void protect(size_t from, size_t count)
{
    static const int protections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    size_t choice = one_in(2) ? 2 : below(3);
    if (!none_is(from, count, UNMAPPED, 0))
        return;
    MUST(mprotect(at(from), count * PAGE, protections[choice]));
    memset(accesses + from, NO_ACCESS + (int)choice, count);
}

/* Where a failed move left its pages is not told: both ends begin anew. */
static void move_failed(size_t from, size_t count, size_t to, size_t fresh)
{
    if (!map_fresh(from, count) || !map_fresh(to, fresh))
        _exit(0); /* no memory for that either */
}

/* Moves a range, sometimes growing or shrinking it, sometimes leaving zeros behind. */
static void move(size_t from, size_t count)
{
    size_t to = below(pages), fresh = count;
    int how = MREMAP_MAYMOVE | MREMAP_FIXED;
    enum access access = accesses[from];
    int property = properties[from] & ~FREED;
    if (access == UNMAPPED || property & LOCKED || !all_alike(from, count))
        return;
    if (one_in(3))
        fresh = one_in(2) ? count + 1 + below(WINDOW) : 1 + below(count);
    else if (one_in(3))
        how |= MREMAP_DONTUNMAP;
    if (to + fresh > pages || (to < from + count && from < to + fresh))
        return;
    if (mremap(at(from), count * PAGE, fresh * PAGE, how, at(to)) == MAP_FAILED) {
        move_failed(from, count, to, fresh);
        return;
    }
    size_t kept = fresh < count ? fresh : count;
    memcpy(tags + to, tags + from, kept * sizeof tags[0]);
    memcpy(accesses + to, accesses + from, kept);
    memcpy(properties + to, properties + from, kept);
    forget(to + kept, fresh - kept, access);
    memset(properties + to + kept, property, fresh - kept);
    if (how & MREMAP_DONTUNMAP)
        memset(tags + from, 0, count * sizeof tags[0]);
    else
        forget(from, count, UNMAPPED);
}

static void unmap(size_t from, size_t count)
{
    MUST(munmap(at(from), count * PAGE));
    forget(from, count, UNMAPPED);
    if (!one_in(3))
        map_fresh(from, count);
}

/* Advice that changes no byte; what the kernel does not know, it refuses. */
static void advise(size_t from, size_t count)
{
    static const int advices[] = {MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP,
                                  MADV_SEQUENTIAL, MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT,
                                  MADV_POPULATE_READ, MADV_POPULATE_WRITE, 25 /* COLLAPSE */};
    madvise(at(from), count * PAGE, advices[below(sizeof advices / sizeof advices[0])]);
}

static void lock(size_t from, size_t count)
{
    int locks = one_in(2);
    if (!none_is(from, count, UNMAPPED, 0) || !none_is(from, count, NO_ACCESS, 0))
        return;
    if (locks && mlock(at(from), count * PAGE) != 0)
        locks = 0;
    if (!locks)
        MUST(munlock(at(from), count * PAGE));
    for (size_t page = from; page < from + count; page++)
        properties[page] = (properties[page] & ~LOCKED) | (locks ? LOCKED : 0);
}

static void inherit(size_t from, size_t count)
{
    static const struct {
        int advice, clear, set;
    } kinds[] = {{MADV_WIPEONFORK, 0, WIPED}, {MADV_KEEPONFORK, WIPED, 0},
                 {MADV_DONTFORK, 0, UNSHARED}, {MADV_DOFORK, UNSHARED, 0}};
    size_t kind = below(4);
    if (!none_is(from, count, UNMAPPED, 0))
        return;
    /* Memory that cannot be anonymous again below a limit keeps its properties: docs/limits.md. */
    int answer = madvise(at(from), count * PAGE, kinds[kind].advice);
    if (answer != 0 && limited >= 0 && errno == EAGAIN)
        return;
    if (answer != 0)
        wrong("madvise(%d) of %zu pages from %zu: %s", kinds[kind].advice, count, from,
              strerror(errno));
    for (size_t page = from; page < from + count; page++)
        properties[page] = (properties[page] & ~kinds[kind].clear) | kinds[kind].set;
}

/* The kernel writes: a page goes through a pipe into another one. */
static void copy_by_kernel(size_t from, size_t count)
{
    size_t to = below(pages);
    int ends[2];
    (void)count;
    if (accesses[from] < READS || accesses[to] != WRITES || properties[from] & FREED)
        return;
    if (pipe(ends) != 0)
        return;
    if (write(ends[1], at(from), PAGE) != (ssize_t)PAGE)
        wrong("write of page %zu into a pipe: %s", from, strerror(errno));
    if (read(ends[0], at(to), PAGE) != (ssize_t)PAGE)
        wrong("read of page %zu from a pipe: %s", to, strerror(errno));
    tags[to] = tags[from];
    properties[to] &= ~FREED;
    close(ends[0]);
    close(ends[1]);
}

static void verify_block(const struct block *block, size_t bytes, const char *when)
{
    long i = wrong_word(block->memory, bytes, block->tag);
    if (i >= 0)
        wrong("%s: block %td of %zu bytes at %p: word %ld holds %#llx, want %#llx", when,
              block - blocks, block->bytes, (void *)block->memory, i,
              (unsigned long long)block->memory[i], (unsigned long long)word_of(block->tag, i));
}

static void verify_blocks(const char *when)
{
    for (int i = 0; i < BLOCKS; i++)
        verify_block(&blocks[i], blocks[i].bytes, when);
}

/* malloc, realloc to another size, free; the prefix survives. */
static void change_heap(void)
{
    struct block *block = &blocks[below(BLOCKS)];
    size_t bytes = (one_in(3) ? 1 + below(MOST_BLOCK / 8) : 1 + below(4000)) * 8;
    if (block->memory && one_in(3)) {
        free(block->memory);
        memset(block, 0, sizeof *block);
        if (one_in(3))
            malloc_trim(0);
        return;
    }
    uint64_t *memory = realloc(block->memory, bytes);
    if (!memory)
        return;
    size_t kept = bytes < block->bytes ? bytes : block->bytes;
    block->memory = memory;
    block->bytes = kept;
    verify_block(block, kept, "realloc");
    block->bytes = bytes;
    block->tag = new_tag();
    fill(memory, bytes, block->tag);
}

static void change(void)
{
    size_t count, from = range(&count);
    switch (below(16)) {
    case 0: case 1: case 2: case 3: write_some(from, count); break;
    case 4: case 5: give_back(from, count); break;
    case 6: protect(from, count); break;
    case 7: unmap(from, count); break;
    case 8: map_fresh(from, count); break;
    case 9: move(from, count); break;
    case 10: advise(from, count); break;
    case 11: lock(from, count); break;
    case 12: inherit(from, count); break;
    case 13: copy_by_kernel(from, count); break;
    default: change_heap();
    }
}

#endif
