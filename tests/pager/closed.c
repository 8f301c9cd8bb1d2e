/* A program that closes what it does not know and takes the numbers for itself: they stay its own
 * in a forked child. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST = 700, LAST = 720, BYTES = 4 << 20 };

int main(void)
{
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 7, BYTES);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    int file = open("/dev/null", O_WRONLY);
    for (int fd = FIRST; fd <= LAST; fd++)
        if (dup2(file, fd) != fd)
            return 1;
    pid_t child = fork();
    if (child < 0) {
        puts("ok"); /* refused: nothing was done to anybody */
        return 0;
    }
    if (child == 0) {
        for (int fd = FIRST; fd <= LAST; fd++)
            if (write(fd, "x", 1) != 1)
                _exit(2);
        _exit(memory[BYTES / 2] == 7 ? 0 : 3);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0) {
        fprintf(stderr, "the child ended with %x\n", status);
        return 1;
    }
    puts("ok");
    return 0;
}
