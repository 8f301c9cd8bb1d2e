// odtest: expect=froze timeout=60 mem=300
/*
 * Threads that allocate, free, map, unmap, advise, remap and protect while the main thread forks 40
 * times with freezes and folds. Each thread keeps its own blocks and mappings, knows what they
 * hold, and compares before every change. Children of the multi-threaded process allocate too, and
 * see the main thread's memory and the settled mappings of all.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, FORKS = 40, BLOCKS = 60, MAPS = 6 };
static const size_t BYTES = 16 * OD_MB, LARGEST = 3 * OD_MB;
static void *region, *settled[THREADS]; /* settled: mapped by the thread, then never changed */
static atomic_int stop, started;
static _Atomic uint64_t changes;

struct block {
    uint64_t *data;
    size_t words;
    uint64_t gen;
    int pieces; /* made of two mappings by the program: stock mremap cannot grow it */
};

static void verify_block(const struct block *b, const char *what)
{
    for (size_t i = 0; i < b->words; i += b->words > 4096 ? 61 : 1)
        CHECK(b->data[i] == od_word(b->gen, i), "%s: word %zu of %zu at %p holds %llx, want %llx",
              what, i, b->words, (void *)(b->data + i), (unsigned long long)b->data[i],
              (unsigned long long)od_word(b->gen, i));
}

static void change_block(struct block *b, uint32_t *random)
{
    size_t words =
        od_random(random) % 50 ? od_random(random) % 400 + 1 : od_random(random) % 60000 + 1;
    if (b->data)
        verify_block(b, "heap block");
    if (b->data && od_random(random) % 3 == 0) {
        free(b->data);
        b->data = NULL;
        return;
    }
    size_t kept = b->data ? (words < b->words ? words : b->words) : 0;
    b->data = od_random(random) % 8 || b->data ? realloc(b->data, words * 8) : calloc(words, 8);
    CHECK(b->data, "no memory");
    for (size_t i = 0; i < kept; i += 7)
        CHECK(b->data[i] == od_word(b->gen, i), "realloc lost word %zu", i);
    b->words = words;
    b->gen = od_random(random);
    od_fill(b->data, words * 8, b->gen);
}

static void make_map(struct block *m, uint32_t *random)
{
    size_t bytes = (od_random(random) % 400 + 100) * OD_PAGE;
    m->data = od_map(bytes);
    m->words = bytes / 8;
    m->gen = od_random(random);
    m->pieces = 0;
    od_fill(m->data, bytes, m->gen);
}

/* One change of a mapping; its content is known before and after. */
static void change_map(struct block *m, uint32_t *random)
{
    if (!m->data) {
        make_map(m, random);
        return;
    }
    verify_block(m, "mapping");
    size_t bytes = m->words * 8, half = bytes / 2 & ~(OD_PAGE - 1);
    char *base = (char *)m->data;
    switch (od_random(random) % 7) {
    case 0:
        OK(munmap(base, bytes));
        m->data = NULL;
        break;
    case 1: /* the second half reads zeros, then is written again */
        OK(madvise(base + half, bytes - half, MADV_DONTNEED));
        od_verify_zero(base + half, bytes - half, "after DONTNEED");
        od_fill_at(base + half, bytes - half, m->gen, half / 8);
        break;
    case 2: /* grows; the new part reads zeros */
        if (bytes < LARGEST && !m->pieces) {
            size_t larger = bytes + 64 * OD_PAGE;
            m->data = OK(mremap(base, bytes, larger, MREMAP_MAYMOVE));
            od_verify_zero((char *)m->data + bytes, larger - bytes, "grown by mremap");
            od_fill_at((char *)m->data + bytes, larger - bytes, m->gen, bytes / 8);
            m->words = larger / 8;
        }
        break;
    case 3:
        if (half == 0)
            break;
        m->data = OK(mremap(base, bytes, half, 0));
        m->words = half / 8;
        if (half < 16 * OD_PAGE) {
            munmap(m->data, half);
            m->data = NULL;
        }
        break;
    case 4:
        OK(mprotect(base, half, PROT_READ));
        verify_block(m, "read-only mapping");
        OK(mprotect(base, half, PROT_READ | PROT_WRITE));
        m->data[0] = od_word(m->gen, 0);
        break;
    case 5: /* either the old words or zeros until written again */
        OK(madvise(base, half, MADV_FREE));
        for (size_t i = 0; i < half / 8; i += 101)
            CHECK(m->data[i] == 0 || m->data[i] == od_word(m->gen, i),
                  "after MADV_FREE word %zu is foreign", i);
        od_fill(base, half, m->gen);
        break;
    default: /* a new mapping over a part of the old one */
        OK(mmap(base + half, OD_PAGE * 4, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        m->pieces = 1;
        od_verify_zero(base + half, OD_PAGE * 4, "mapped over");
        od_fill_at(base + half, OD_PAGE * 4, m->gen, half / 8);
    }
}

static void *churn(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    static _Thread_local struct block blocks[BLOCKS], maps[MAPS];
    uint32_t random = me * 7919 + 1;
    settled[me] = region_new(2 * OD_MB, 50 + me);
    atomic_fetch_add(&started, 1);
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 40; i++)
            change_block(&blocks[od_random(&random) % BLOCKS], &random);
        change_map(&maps[od_random(&random) % MAPS], &random);
        atomic_fetch_add(&changes, 1);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].data)
            verify_block(&blocks[i], "heap block at the end");
        free(blocks[i].data);
    }
    for (int i = 0; i < MAPS; i++)
        if (maps[i].data)
            verify_block(&maps[i], "mapping at the end"), munmap(maps[i].data, maps[i].words * 8);
    return NULL;
}

static void look(int n)
{
    region_check(region, BYTES, 50 + THREADS, 4 * REGION_STEP, "main thread's region");
    for (unsigned t = 0; t < THREADS; t++)
        region_check(settled[t], 2 * OD_MB, 50 + t, REGION_STEP, "settled mapping");
    /* the C library makes the heap usable in the child */
    char *block = malloc(100000 + (size_t)n * 1000);
    CHECK(block, "malloc in the child");
    memset(block, n, 100000);
    free(block);
    _exit(0);
}

int main(void)
{
    pthread_t thread[THREADS];
    region = region_new(BYTES, 50 + THREADS);
    for (uintptr_t t = 0; t < THREADS; t++)
        CHECK(pthread_create(&thread[t], NULL, churn, (void *)t) == 0, "pthread_create");
    while (atomic_load(&started) < THREADS)
        usleep(1000);
    for (int n = 0; n < FORKS; n++) {
        region_touch(region, 2 * OD_MB, 50 + THREADS, (size_t)n);
        pid_t pid = fork();
        CHECK(pid >= 0, "fork: %s", strerror(errno));
        if (pid == 0)
            look(n);
        od_join(pid);
        if (n % 20 == 9)
            od_refreeze();
        if (n == 25)
            od_thaw();
        uint64_t before = atomic_load(&changes);
        for (int k = 0; k < 25 && atomic_load(&changes) < before + 4; k++)
            usleep(200);
    }
    atomic_store(&stop, 1);
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    CHECK(atomic_load(&changes) > FORKS, "threads hardly ran");
    region_check(region, BYTES, 50 + THREADS, 1, "at the end");
    return od_done();
}
