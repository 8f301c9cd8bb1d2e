/* Did the process map change since it was read? Only reading all of it again tells. */
#include "wish.h"

enum { COUNT = 2000 };

/* Bytes of the whole map; the calls it takes are counted. */
static long read_map(int *calls)
{
    char text[4096];
    long bytes = 0, got;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0);
    for (*calls = 0; (got = read(fd, text, sizeof text)) > 0; ++*calls)
        bytes += got;
    close(fd);
    return bytes;
}

int main(void)
{
    int calls;
    char *at = map(2 * COUNT * PAGE, MAP_PRIVATE, -1);
    for (int i = 0; i < COUNT; i++)
        EXPECT(mprotect(at + 2 * i * PAGE, PAGE, PROT_READ) == 0);
    long before = read_map(&calls);
    EXPECT(syscall(SYS_mprotect, at, PAGE, PROT_NONE) == 0); /* past every wrapper */
    long after = read_map(&calls);
    printf("one page of %d mappings changed its access: the map has %ld bytes, had %ld\n",
           2 * COUNT, after, before);
    printf("finding that out took %d calls\n", calls);
    EXPECT(calls > 20);
    return 0;
}
