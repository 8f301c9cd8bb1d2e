/* Children that went past the C library, and programs that are executed: nobody reads a wrong byte.
 * */
#include "pages.h"
#include <sys/syscall.h>

int main(int argc, char **argv)
{
    size_t pages = 20 << 8;
    if (argc > 1 && strcmp(argv[1], "again") == 0) {
        uint64_t *fresh = paged(pages * PAGE);
        need_paged(fresh);
        for (size_t page = 0; page < pages; page++)
            check_page("after exec", fresh + page * WORDS, page, 0);
        printf("ok\n");
        return 0;
    }
    uint64_t *memory = paged(pages * PAGE);
    need_paged(memory);
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * WORDS, page, 1);
    pid_t child = raw_fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        volatile uint64_t first = memory[0];
        _exit(first == word_of(0, 1, 0) ? 0 : 7); /* right content would be fine as well */
    }
    int status;
    waitpid(child, &status, 0);
    if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) && status != 0)
        fprintf(stderr, "a child of a raw fork: status %x\n", status), abort();
    /* a raw child that makes mappings of its own speaks for itself */
    child = raw_fork();
    if (child == 0) {
        uint64_t *own = paged(pages * PAGE);
        fill_page(own + WORDS, 1, 9);
        check_page("raw child's own", own + WORDS, 1, 9);
        munmap(own, pages * PAGE);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (status != 0)
        fprintf(stderr, "a raw child with mappings: status %x\n", status), abort();
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    waitpid(child, &status, 0);
    if (status != 0)
        fprintf(stderr, "vfork and exec: status %x\n", status), abort();
    /* closing what one does not know must harm nobody */
    syscall(SYS_close_range, 3, ~0u, 0);
    for (size_t page = 0; page < pages; page++)
        check_page("after all closed", memory + page * WORDS, page, 1);
    sleep(2);
    for (size_t page = 0; page < pages; page++)
        check_page("a while after all closed", memory + page * WORDS, page, 1);
    execl(argv[0], argv[0], "again", NULL);
    perror("exec");
    return 6;
}
