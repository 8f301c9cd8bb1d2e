/* fork of a paged program: parent and child go on with the same content, each for itself.
 * Arguments: megabytes, generations, seed, writer threads in the parent. */
#include "pages.h"

static uint64_t *memory;
static uint32_t *versions;
static size_t pages;
static atomic_int stop;
static atomic_int handlers;
static unsigned threads;

static void in_child(void)
{
    /* Another library's handler: the memory must be there. */
    check_page("handler", memory, 0, versions[0]);
    atomic_fetch_add(&handlers, 1);
}

static void mutate(uint64_t *state, unsigned count, uint32_t version)
{
    for (unsigned n = 0; n < count; n++) {
        size_t page = next_random(state) % (pages / 2);
        peek_page("before write", memory + page * WORDS, page, versions[page]);
        fill_page(memory + page * WORDS, page, versions[page] = version);
    }
}

/* Threads write to the upper half while the fork happens: in both processes every word must be an
 * old or a new one. */
static void *scribble(void *argument)
{
    uint64_t state = (uintptr_t)argument;
    while (!atomic_load(&stop)) {
        size_t page = pages / 2 + next_random(&state) % (pages / 2 - 1);
        if (page % threads != (uintptr_t)argument % threads)
            continue;
        uint64_t *at = memory + page * WORDS;
        at[0] = at[1] + 1;
        at[1] = at[0];
    }
    return NULL;
}

static void check_scribble(void)
{
    for (size_t page = pages / 2; page < pages; page++) {
        volatile uint64_t *at = memory + page * WORDS;
        uint64_t a = at[0], b = at[1];
        if (a != b && a != b + 1)
            fprintf(stderr, "WRONG scribble: page %zu: %lu and %lu\n", page, a, b), abort();
        for (unsigned n = 2; n < WORDS; n += 37)
            if (at[n] != 0)
                fprintf(stderr, "WRONG scribble: page %zu word %u: %lx\n", page, n, at[n]), abort();
    }
}

static void check_all(const char *what)
{
    for (size_t page = 0; page < pages / 2; page++)
        check_page(what, memory + page * WORDS, page, versions[page]);
}

static int generation(unsigned left, uint64_t seed)
{
    uint64_t state = seed;
    mutate(&state, pages / 4, 1000 * left + 1);
    pid_t child = fork();
    if (child < 0)
        perror("fork"), abort();
    if (child == 0) {
        check_scribble();
        mutate(&state, pages / 8, 1000 * left + 2);
        if (left > 0)
            generation(left - 1, seed * 3 + 1);
        check_all("child");
        need_paged(memory);
        uint64_t *more = paged(4 << 20);
        need_paged(more);
        fill_page(more + 7 * WORDS, 7, 7);
        check_page("child's own", more + 7 * WORDS, 7, 7);
        _exit(atomic_load(&handlers) > 0 ? 0 : 9);
    }
    mutate(&state, pages / 8, 1000 * left + 3);
    check_all("parent");
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fprintf(stderr, "child of generation %u: status %x\n", left, status), abort();
    check_all("parent afterwards");
    return 0;
}

int main(int argc, char **argv)
{
    size_t megabytes = argc > 1 ? atoi(argv[1]) : 32;
    unsigned generations = argc > 2 ? atoi(argv[2]) : 3;
    uint64_t seed = argc > 3 ? atoi(argv[3]) : 1;
    threads = argc > 4 ? atoi(argv[4]) : 0;
    pages = megabytes * 256;
    memory = paged(pages * PAGE);
    need_paged(memory);
    versions = calloc(pages, sizeof *versions);
    pthread_atfork(NULL, NULL, in_child);
    pthread_t all[16];
    for (uintptr_t n = 0; n < threads; n++)
        pthread_create(&all[n], NULL, scribble, (void *)(n + 1));
    for (unsigned n = 0; n < 3; n++)
        generation(generations, seed + n);
    atomic_store(&stop, 1);
    for (unsigned n = 0; n < threads; n++)
        pthread_join(all[n], NULL);
    check_scribble();
    fflush(stdout);
    /* and programs that are started */
    if (system("true") != 0)
        fprintf(stderr, "system failed\n"), abort();
    printf("ok %u generations\n", generations);
    return 0;
}
