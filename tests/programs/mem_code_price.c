/* A small process with much code: in mode auto, searching the code may cost no more than the forks
 * have cost. How much was searched shows in the resident pages of the file. */
// odtest: modes=stock,auto expect=any mem=700
#include "odtest.h"

#define SIZE (16 * OD_MB)
#define CODE (256 * OD_MB)

int main(void)
{
    char name[] = "code_price.XXXXXX";
    int fd = OK(mkstemp(name));
    OK(unlink(name));
    OK(ftruncate(fd, CODE));
    OK(mmap(NULL, CODE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
    char *p = od_map(SIZE);
    od_fill(p, SIZE, 1);
    long before = od_proc_kb("/proc/self/status", "RssFile:");
    for (int i = 0; i < 20; i++) {
        pid_t pid = od_fork();
        if (pid == 0)
            _exit(0);
        od_join(pid);
    }
    long grown = od_proc_kb("/proc/self/status", "RssFile:") - before;
    CHECK(grown < (long)(CODE / 2048), "%ld kB of code were searched for 20 small forks", grown);
    od_verify(p, SIZE, 1, "afterwards");
    return od_done();
}
