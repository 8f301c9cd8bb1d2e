/* Fills memory, says "ready", waits for a line, checks. Arguments: megabytes; 1: meanwhile its
 * userfaultfd is a blocking one, for everybody who shares the description; 2: it says that it
 * collects garbage. */
#include "pages.h"
#include <dlfcn.h>
#include <fcntl.h>

static void make_blocking(void)
{
    int made = 0;
    for (int fd = 3; fd < 1024; fd++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0 &&
            strcmp(target, "anon_inode:[userfaultfd]") == 0)
            made += fcntl(fd, F_SETFL, 0) == 0;
    }
    if (made == 0)
        fprintf(stderr, "no userfaultfd was found\n"), exit(5);
}

int main(int argc, char **argv)
{
    size_t pages = (argc > 1 ? atoi(argv[1]) : 2) * 256;
    int blocking = argc > 2 && atoi(argv[2]) == 1;
    uint64_t *memory = paged(pages * PAGE);
    need_paged(memory);
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * WORDS, page, 1);
    if (blocking)
        make_blocking();
    if (argc > 2 && atoi(argv[2]) == 2) {
        int (*advise)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "odfork_page_advise");
        if (!advise || advise(1) != 0)
            return 7;
    }
    puts("ready");
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin))
        return 6;
    if (blocking)
        make_blocking();
    for (size_t page = 0; page < pages; page++)
        check_page("afterwards", memory + page * WORDS, page, 1);
    puts("ok");
    return 0;
}
