/* Has many children, each with memory of its own, that all end at the same moment. Argument: how
 * many. */
#include "pages.h"
#include <sys/prctl.h>

int main(int argc, char **argv)
{
    int children = argc > 1 ? atoi(argv[1]) : 700, pipes[2], born[2];
    uint64_t *memory = paged(1 << 20);
    need_paged(memory);
    fill_page(memory, 0, 1);
    if (pipe(pipes) || pipe(born))
        return 5;
    for (int n = 0; n < children; n++) {
        pid_t child = fork();
        if (child < 0)
            return perror("fork"), 6;
        if (child == 0) {
            char byte = 0;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(pipes[1]);
            check_page("child", memory, 0, 1);
            if (write(born[1], "", 1) != 1 || read(pipes[0], &byte, 1) != 0)
                _exit(7);
            _exit(0);
        }
    }
    char byte;
    for (int n = 0; n < children; n++)
        if (read(born[0], &byte, 1) != 1)
            return 8;
    close(pipes[1]);
    for (int n = 0, status; n < children; n++)
        if (wait(&status) < 0 || status != 0)
            return fprintf(stderr, "a child ended with %d\n", status), 9;
    check_page("parent", memory, 0, 1);
    puts("ok");
    return 0;
}
