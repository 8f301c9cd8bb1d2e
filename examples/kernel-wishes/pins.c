/* Is somebody about to read or write this page behind the page tables? A pipe holds it here; direct
 * I/O, io_uring and devices do the same. */
#include "wish.h"

int main(void)
{
    int pipes[2];
    char *page = map(PAGE, MAP_PRIVATE, -1), byte;
    struct iovec all = {page, PAGE};
    memset(page, 'a', PAGE);
    uint64_t before = entry(page);
    EXPECT(pipe(pipes) == 0 && syscall(SYS_vmsplice, pipes[1], &all, 1, 0) == PAGE);
    uint64_t after = entry(page);
    printf("entry of the page before: %016llx\n", (unsigned long long)before);
    printf("entry with a reader:      %016llx\n", (unsigned long long)after);
    *(volatile char *)page = 'b';
    EXPECT(read(pipes[0], &byte, 1) == 1);
    printf("the page is said to be exclusive: %d; what was written since is read elsewhere: %c\n",
           (after & EXCLUSIVE) != 0, byte);
    EXPECT(before == after && byte == 'b');
    return 0;
}
