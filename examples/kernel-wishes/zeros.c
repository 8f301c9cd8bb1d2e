/* A page of a private file mapping is to read as zeros, as anonymous memory given up does. */
#include "wish.h"

enum { PAGES = 200 };

int main(void)
{
    int fd = file_of(PAGES * PAGE);
    char *at = map(PAGES * PAGE, MAP_PRIVATE, fd);
    EXPECT(madvise(at, PAGE, MADV_DONTNEED) == 0);
    printf("after MADV_DONTNEED the page reads '%c', the file's byte\n", *at);
    EXPECT(*at == 'f');
    long before = number("/proc/self/maps", NULL);
    for (int i = 0; i < PAGES; i += 2)
        EXPECT(mmap(at + i * PAGE, PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
    long after = number("/proc/self/maps", NULL);
    printf("%d pages made zero by new mappings: %ld mappings more\n", PAGES / 2, after - before);
    EXPECT(*at == 0 && after - before >= PAGES - 2);
    return 0;
}
