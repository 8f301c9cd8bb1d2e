/* A fork that cannot succeed is refused; no child is left behind, none was seen. Says "ready",
 * reads a line, forks. Argument: "gone" the supervisor is gone by then; "full" the store is. */
#include "pages.h"

int main(int argc, char **argv)
{
    int full = argc > 1 && strcmp(argv[1], "full") == 0;
    size_t pages = (full ? 12 : 24) << 8;
    uint64_t *memory = paged(pages * PAGE);
    need_paged(memory);
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * WORDS, page, 1);
    printf("ready\n");
    fflush(stdout);
    char line[8];
    if (!fgets(line, sizeof line, stdin))
        return 7;
    for (int n = 0; n < 3; n++) {
        pid_t child = fork();
        if (child == 0)
            _exit(8);
        if (child > 0)
            fprintf(stderr, "it forked\n"), abort();
        if (errno != (full ? ENOMEM : EAGAIN))
            perror("fork"), abort();
        if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
            fprintf(stderr, "a child is there\n"), abort();
        for (size_t page = 0; page < pages; page++)
            check_page("after a fork refused", memory + page * WORDS, page, 1);
    }
    printf("ok\n");
    return 0;
}
