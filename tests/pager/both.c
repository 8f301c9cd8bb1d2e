/* Memory that is given up reads as zeros, memory that is moved or inherited keeps its content;
 * beside libodfork.so, too. Arguments: "paged" or "left", whether the pager is expected to have it;
 * megabytes. */
#include "pages.h"

static void check_from(const char *what, const uint64_t *memory, size_t first, size_t end,
                       uint64_t version)
{
    for (size_t page = first; page < end; page++)
        check_page(what, memory + page * WORDS, version ? page : 0, version);
}

static void give_up(uint64_t *memory, size_t first, size_t end, int advice)
{
    if (madvise(memory + first * WORDS, (end - first) * PAGE, advice) != 0)
        perror("madvise"), abort();
    if (advice == MADV_DONTNEED)
        check_from("given up", memory, first, end, 0);
    for (size_t page = first; page < end; page++)
        fill_page(memory + page * WORDS, page, 2);
}

static void fork_and_check(const uint64_t *memory, size_t pages)
{
    pid_t child = fork();
    if (child == 0) {
        check_from("in the child", memory, 0, pages, 2);
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fprintf(stderr, "the child: %x\n", status), abort();
}

int main(int argc, char **argv)
{
    int expected = argc > 1 && strcmp(argv[1], "paged") == 0;
    size_t pages = (argc > 2 ? atoi(argv[2]) : 8) * 256;
    uint64_t *memory = paged(pages * PAGE);
    if (is_paged(memory) != expected)
        fprintf(stderr, "paged: %d\n", !expected), exit(4);
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * WORDS, page, 1);
    /* A freeze before anything is given up. */
    if (fork() == 0)
        _exit(0);
    wait(NULL);
    size_t step = pages / 4;
    give_up(memory, 0, step, MADV_DONTNEED);
    give_up(memory, step, 2 * step, MADV_FREE);
    check_from("kept", memory, 2 * step, pages, 1);
    give_up(memory, 2 * step, 2 * step + 1, MADV_DONTNEED);
    give_up(memory, 2 * step + 1, pages, MADV_DONTNEED);
    fork_and_check(memory, pages);
    memory = mremap(memory, pages * PAGE, 2 * pages * PAGE, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED)
        perror("mremap"), abort();
    check_from("moved", memory, 0, pages, 2);
    check_from("new", memory, pages, 2 * pages, 0);
    fork_and_check(memory, pages);
    puts("ok");
    return 0;
}
