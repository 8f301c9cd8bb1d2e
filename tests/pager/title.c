/* Writes a title over its arguments and environment, as servers do, before it makes its first large
 * mapping. */
#include "pages.h"

extern char **environ;

int main(int argc, char **argv)
{
    char *first = argv[0], *last = argv[argc - 1] + strlen(argv[argc - 1]);
    char **kept = environ;
    for (; *kept; kept++)
        if (*kept == last + 1)
            last = *kept + strlen(*kept);
    memset(first, 0, last - first);
    strcpy(first, "title");
    uint64_t *memory = paged(4 << 20);
    need_paged(memory);
    for (size_t page = 0; page < 1024; page++)
        fill_page(memory + page * WORDS, page, 1);
    for (size_t page = 0; page < 1024; page++)
        check_page("titled", memory + page * WORDS, page, 1);
    puts("ok");
    return 0;
}
