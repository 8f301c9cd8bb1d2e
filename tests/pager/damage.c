/* Fills memory, waits for a line, and reads everything: a page may be a SIGBUS, but never wrong.
 * Argument: megabytes. */
#include "pages.h"
#include <setjmp.h>

static sigjmp_buf back;
static void on_bus(int signal)
{
    siglongjmp(back, signal);
}

int main(int argc, char **argv)
{
    size_t pages = (argc > 1 ? atoi(argv[1]) : 32) * 256, errors = 0;
    uint64_t *memory = paged(pages * PAGE);
    need_paged(memory);
    signal(SIGBUS, on_bus);
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * WORDS, page, 1);
    printf("filled\n");
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin))
        return 5;
    for (volatile size_t page = 0; page < pages; page++) {
        if (sigsetjmp(back, 1) == 0)
            check_page("after damage", memory + page * WORDS, page, 1);
        else
            errors++;
    }
    printf("%zu errors\n", errors);
    return 0;
}
