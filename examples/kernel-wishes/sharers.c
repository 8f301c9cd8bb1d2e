/* Does another process show pages of this file? Two answers, both wrong. */
#include "wish.h"

int main(void)
{
    int fd = file_of(PAGE), go[2], ready[2], status;
    char *shown = map(PAGE, MAP_PRIVATE, fd), *probe = map(PAGE, MAP_PRIVATE, -1), byte;
    EXPECT(pipe(go) == 0 && pipe(ready) == 0 && *(volatile char *)shown == 'f');
    *probe = 1;
    EXPECT(entry(probe) & EXCLUSIVE);
    if (fork() == 0) {
        munmap(probe, PAGE);
        close(fd);
        EXPECT(write(ready[1], "", 1) == 1 && read(go[0], &byte, 1) == 1);
        _exit(*(volatile char *)shown);
    }
    EXPECT(read(ready[0], &byte, 1) == 1 && munmap(shown, PAGE) == 0);
    int lonely = (entry(probe) & EXCLUSIVE) != 0, lease = fcntl(fd, F_SETLEASE, F_WRLCK);
    printf("1. a page that every relative inherits is %s\n",
           lonely ? "mapped by nobody else" : "shared");
    printf("2. a lease on the file is %s\n", lease == 0 ? "granted" : strerror(errno));
    EXPECT(pwrite(fd, "p", 1, 0) == 1 && write(go[1], "", 1) == 1 && wait(&status) > 0);
    printf("a child reads '%c', which this process wrote after the fork\n", WEXITSTATUS(status));
    EXPECT(lonely && WEXITSTATUS(status) == 'p');
    return 0;
}
