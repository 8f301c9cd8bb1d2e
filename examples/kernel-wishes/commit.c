/* A private copy of a file's page is to become the file's page. It takes two calls; what another
 * thread writes between them is lost. */
#include "wish.h"

int main(void)
{
    int fd = file_of(PAGE);
    char *private = map(PAGE, MAP_PRIVATE, fd), *shared = map(PAGE, MAP_SHARED, fd);
    *(volatile char *)private = '1';
    memcpy(shared, private, PAGE); /* first call, or copy: the file has the bytes */
    EXPECT(*private == '1' && *shared == '1');
    *shared = 'f';
    EXPECT(*private == '1'); /* but this process still has a copy of its own */
    *shared = '1';
    *(volatile char *)private = '2'; /* another thread */
    EXPECT(madvise(private, PAGE, MADV_DONTNEED) == 0); /* second call: the copy goes */
    printf("the other thread wrote 2, memory says %c\n", *private);
    EXPECT(*private == '1');
    return 0;
}
