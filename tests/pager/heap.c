/* malloc and its family, large and small, several threads, each block checked. Arguments: seconds,
 * threads, seed. */
#include "pages.h"
#include <malloc.h>

#define BLOCKS 200
static uint64_t deadline, seed0;

struct block {
    unsigned char *at;
    size_t size;
    unsigned char mark;
};

static void paint(struct block *b, size_t from)
{
    for (size_t n = from; n < b->size; n += 509)
        b->at[n] = b->mark ^ (n >> 9);
    b->at[b->size - 1] = b->mark;
}

static void check(struct block *b, size_t size)
{
    for (size_t n = 0; n < size; n += 509)
        if (b->at[n] != (unsigned char)(b->mark ^ (n >> 9)) && n != b->size - 1)
            fprintf(stderr, "WRONG block of %zu at %zu: %x\n", b->size, n, b->at[n]), abort();
}

static void *work(void *argument)
{
    uint64_t state = seed0 * 99 + (uintptr_t)argument;
    struct block all[BLOCKS] = {{0}};
    unsigned long steps = 0;
    while (now_ns() < deadline) {
        uint64_t r = next_random(&state);
        struct block *b = &all[r % BLOCKS];
        size_t size = 1 + (r >> 20) % ((r >> 60) ? 60000 : 2000000);
        steps++;
        if (b->at && r >> 50 & 1) {
            check(b, b->size);
            size_t old = b->size, keep = old < size ? old : size;
            b->at = realloc(b->at, size);
            b->size = size;
            check(b, keep > 1 ? keep - 1 : 0);
            paint(b, 0);
            continue;
        }
        if (b->at) {
            check(b, b->size);
            free(b->at);
        }
        b->size = size;
        b->mark = r >> 8;
        switch ((r >> 44) % 4) {
        case 0:
            b->at = calloc(1, size);
            for (size_t n = 0; n < size; n += 61)
                if (b->at[n])
                    fprintf(stderr, "WRONG calloc\n"), abort();
            break;
        case 1:
            if (posix_memalign((void **)&b->at, 4096, size) != 0 || (uintptr_t)b->at % 4096)
                abort();
            break;
        default:
            b->at = malloc(size);
        }
        if (malloc_usable_size(b->at) < size)
            abort();
        paint(b, 0);
    }
    for (int n = 0; n < BLOCKS; n++)
        if (all[n].at)
            check(&all[n], all[n].size), free(all[n].at);
    return (void *)steps;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    unsigned threads = argc > 2 ? atoi(argv[2]) : 2;
    seed0 = argc > 3 ? atoi(argv[3]) : 1;
    void *big = malloc(4 << 20);
    need_paged(big);
    free(big);
    deadline = now_ns() + (uint64_t)(seconds * 1e9);
    pthread_t all[16];
    unsigned long steps = 0;
    for (uintptr_t n = 0; n < threads; n++)
        pthread_create(&all[n], NULL, work, (void *)n);
    for (unsigned n = 0; n < threads; n++) {
        void *done;
        pthread_join(all[n], &done);
        steps += (unsigned long)done;
    }
    pid_t child = fork();
    if (child == 0) {
        char *mine = calloc(1, 3 << 20);
        mine[2 << 20] = 1;
        _exit(mine[1 << 20]);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0)
        fprintf(stderr, "child: status %x\n", status), abort();
    printf("ok %lu steps\n", steps);
    return 0;
}
