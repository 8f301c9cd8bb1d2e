/* What both targets share: the count of executions that odfork bench afl reads, and the loop. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A page of the file in the variable EXECUTIONS, shared with whoever counts. */
static uint64_t *executions(void)
{
    static uint64_t nowhere;
    const char *path = getenv("EXECUTIONS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return &nowhere;
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return page == MAP_FAILED ? &nowhere : page;
}
