/* malloc, calloc, realloc, free, memalign and malloc_trim on a frozen heap of several arenas.
 * Every block holds a pattern of its own; calloc must give zeros after trims and reuse. */
// odtest: timeout=90 mem=500
#include "odtest.h"
#include <malloc.h>
#include <pthread.h>

#define SLOTS 6000
#define STEPS 4000

struct block {
    unsigned char *at;
    size_t size;
    unsigned char seed;
};

static struct block block[SLOTS];
static uint32_t dice = 11;

static void paint(struct block *b, size_t from)
{
    for (size_t i = from; i < b->size; i++)
        b->at[i] = (unsigned char)(b->seed + i * 7 + (i >> 8));
}

static void verify(const struct block *b, size_t size, const char *what)
{
    for (size_t i = 0; i < size; i++)
        CHECK(b->at[i] == (unsigned char)(b->seed + i * 7 + (i >> 8)),
              "%s: byte %zu of a block of %zu", what, i, b->size);
}

static size_t pick_size(uint32_t *state)
{
    switch (od_random(state) % 64) {
    case 0:
        return 200000 + od_random(state) % 600000; /* mmapped, or near it */
    case 1:
    case 2:
        return 20000 + od_random(state) % 60000;
    default:
        return 1 + od_random(state) % 6000;
    }
}

static void renew(struct block *b, uint32_t *state)
{
    b->size = pick_size(state);
    b->seed = od_random(state);
    int way = od_random(state) % 4;
    if (way == 0) {
        b->at = calloc(1, b->size);
        CHECK(b->at, "calloc");
        od_verify_zero(b->at, b->size, "calloc");
    } else {
        b->at = way == 1 ? memalign(64 << od_random(state) % 8, b->size) : malloc(b->size);
    }
    CHECK(b->at, "malloc");
    paint(b, 0);
}

static void step(uint32_t *state)
{
    struct block *b = &block[od_random(state) % SLOTS];
    if (b->at && od_random(state) % 3 == 0) {
        size_t old = b->size;
        b->size = pick_size(state);
        b->at = realloc(b->at, b->size);
        CHECK(b->at, "realloc");
        verify(b, old < b->size ? old : b->size, "realloc");
        paint(b, 0);
        return;
    }
    if (b->at) {
        verify(b, b->size, "free");
        free(b->at);
    }
    renew(b, state);
}

static void verify_all(const char *what)
{
    for (int i = 0; i < SLOTS; i++)
        if (block[i].at)
            verify(&block[i], block[i].size, what);
}

static void child(void *argument)
{
    uint32_t mine = *(uint32_t *)argument;
    verify_all("child");
    for (int i = 0; i < 1500; i++)
        step(&mine);
    malloc_trim(0);
    od_refreeze();
    for (int i = 0; i < 500; i++)
        step(&mine);
    verify_all("child after its own steps");
}

/* Fills a share of the slots from an arena of its own, then ends. */
static void *fill_share(void *argument)
{
    size_t share = (size_t)argument;
    uint32_t state = share;
    for (size_t i = share; i < SLOTS; i += 4)
        renew(&block[i], &state);
    return NULL;
}

static void fill_from_threads(void)
{
    pthread_t thread[3];
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_create(&thread[i], NULL, fill_share, (void *)(i + 1)) == 0, "pthread_create");
    for (size_t i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    fill_share((void *)0);
}

/* Frees most, trims, and asks for zeros over the same ground. */
static void trim_and_calloc(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (i % 10 && block[i].at) {
            verify(&block[i], block[i].size, "before the trim");
            free(block[i].at);
            block[i].at = NULL;
        }
    malloc_trim(0);
    for (int i = 0; i < 400; i++) {
        unsigned char *at = calloc(1, 50000);
        od_verify_zero(at, 50000, "calloc after a trim");
        memset(at, 0xee, 50000);
        if (block[i * 10 + 1].at == NULL)
            block[i * 10 + 1] = (struct block){at, 0, 0};
        else
            free(at);
    }
    verify_all("after the trim");
}

int main(void)
{
    fill_from_threads();
    for (int round = 0; round < 12; round++) {
        od_run_child(child, &dice);
        verify_all("parent");
        for (int i = 0; i < STEPS; i++)
            step(&dice);
        if (round % 4 == 1)
            od_refreeze();
        if (round % 4 == 3)
            trim_and_calloc();
    }
    verify_all("at the end");
    return od_done();
}
