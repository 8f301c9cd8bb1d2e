/* One private page in a file mapping, and fork copies the page tables of all of it. */
#include "wish.h"

#define SIZE ((size_t)256 << 20)

/* Kilobytes of page tables in a child. */
static long tables_of_child(void)
{
    int pipes[2];
    long kilobytes = 0;
    EXPECT(pipe(pipes) == 0);
    if (fork() == 0) {
        kilobytes = number("/proc/self/status", "VmPTE:");
        _exit(write(pipes[1], &kilobytes, sizeof kilobytes) != sizeof kilobytes);
    }
    EXPECT(read(pipes[0], &kilobytes, sizeof kilobytes) == sizeof kilobytes);
    wait(NULL);
    return kilobytes;
}

int main(void)
{
    int fd = file_of(SIZE);
    char *at = map(SIZE, MAP_PRIVATE, fd);
    EXPECT(madvise(at, SIZE, MADV_POPULATE_READ) == 0);
    long clean = tables_of_child();
    *(volatile char *)at = 'x';
    long dirty = tables_of_child();
    printf("page tables of a child: %ld kB; with one page of %zu rewritten: %ld kB\n", clean,
           SIZE / PAGE, dirty);
    EXPECT(dirty - clean >= 400);
    return 0;
}
