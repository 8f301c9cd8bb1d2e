/* Random reads and writes by several threads over more memory than the limit; every page is checked
 * against what was written last. Arguments: megabytes, threads, seconds, seed, share of writes in
 * per cent. Each thread owns the pages whose number leaves its rest, so that the versions need no
 * lock; reads of others' pages check only that the words agree. */
#include "pages.h"

static uint64_t *memory;
static size_t pages;
static unsigned threads, writes;
static uint64_t deadline, seed0;
static uint32_t *versions;
static atomic_ulong operations;

static void *work(void *argument)
{
    uint64_t me = (uintptr_t)argument, state = seed0 * 77 + me, count = 0;
    while (now_ns() < deadline) {
        uint64_t r = next_random(&state);
        uint64_t start = r % pages, run = 1;
        if (r >> 60 == 0)
            run = 64 * threads; /* now and then a walk */
        for (uint64_t page = start - start % threads + me; page < pages && page < start + run;
             page += threads) {
            uint64_t *at = memory + page * WORDS;
            if (next_random(&state) % 100 < writes) {
                if (versions[page] & 1)
                    check_page("before write", at, page, versions[page]);
                else
                    peek_page("before write", at, page, versions[page]);
                versions[page]++;
                fill_page(at, page, versions[page]);
            } else {
                peek_page("read", at, page, versions[page]);
            }
            count++;
        }
    }
    atomic_fetch_add(&operations, count);
    return NULL;
}

int main(int argc, char **argv)
{
    size_t megabytes = argc > 1 ? atoi(argv[1]) : 64;
    threads = argc > 2 ? atoi(argv[2]) : 2;
    double seconds = argc > 3 ? atof(argv[3]) : 2;
    seed0 = argc > 4 ? atoi(argv[4]) : 1;
    writes = argc > 5 ? atoi(argv[5]) : 30;
    pages = megabytes * 256;
    memory = paged(pages * PAGE);
    need_paged(memory);
    versions = calloc(pages, sizeof *versions);
    deadline = now_ns() + (uint64_t)(seconds * 1e9);
    pthread_t all[64];
    for (uintptr_t n = 0; n < threads; n++)
        pthread_create(&all[n], NULL, work, (void *)n);
    for (unsigned n = 0; n < threads; n++)
        pthread_join(all[n], NULL);
    size_t used = 0;
    for (size_t page = 0; page < pages; page++) {
        check_page("at the end", memory + page * WORDS, page, versions[page]);
        used += versions[page] != 0;
    }
    printf("ok %lu operations, %zu of %zu pages written\n", operations, used, pages);
    return 0;
}
