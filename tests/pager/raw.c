/* System calls of the program's own, past the C library, on paged memory: what it then has there is
 * not the pager's, and stays. */
#include "pages.h"
#include <sys/syscall.h>

int main(void)
{
    size_t pages = 16 << 8, from = 2 << 8, count = 4 << 8;
    uint64_t *memory = paged(pages * PAGE);
    need_paged(memory);
    for (size_t page = 0; page < pages; page++)
        fill_page(memory + page * WORDS, page, 1);
    uint64_t *hole = memory + from * WORDS, *over = hole + 2 * count * WORDS;
    if (syscall(SYS_munmap, hole, count * PAGE) != 0)
        perror("munmap"), abort();
    int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (syscall(SYS_mmap, hole, count * PAGE, prot, flags | MAP_FIXED_NOREPLACE, -1, 0) !=
        (long)hole)
        perror("mmap"), abort();
    if (syscall(SYS_mmap, over, count * PAGE, prot, flags | MAP_FIXED, -1, 0) != (long)over)
        perror("mmap over"), abort();
    for (size_t page = 0; page < count; page++) {
        check_page("new", hole + page * WORDS, page, 0);
        fill_page(hole + page * WORDS, page, 5);
        fill_page(over + page * WORDS, page, 6);
    }
    for (int round = 0; round < 4; round++) {
        uint64_t *other = paged(pages * PAGE);
        for (size_t page = 0; page < pages; page++)
            fill_page(other + page * WORDS, page, 3);
        for (size_t page = 0; page < pages; page++) {
            uint64_t *at = memory + page * WORDS;
            if (at >= hole && at < hole + count * WORDS)
                check_page("in the hole", at, page - from, 5);
            else if (at >= over && at < over + count * WORDS)
                check_page("mapped over", at, page - from - 2 * count, 6);
            else
                check_page("around", at, page, 1);
        }
        munmap(other, pages * PAGE);
    }
    pid_t child = fork();
    if (child == 0) {
        for (size_t page = 0; page < count; page++) {
            check_page("child, hole", hole + page * WORDS, page, 5);
            check_page("child, over", over + page * WORDS, page, 6);
        }
        check_page("child, around", memory, 0, 1);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fprintf(stderr, "the child ended with %x\n", status), abort();
    for (size_t page = 0; page < count; page++) {
        check_page("parent, hole", hole + page * WORDS, page, 5);
        check_page("parent, over", over + page * WORDS, page, 6);
    }
    if (munmap(memory, pages * PAGE) != 0)
        perror("munmap"), abort();
    printf("ok\n");
    return 0;
}
