/* Holds 32 MB and forks when a letter comes: f, and the child ends; k, and the child stays. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    size_t size = 32 << 20;
    volatile char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < size; i += 4096)
        p[i] = 1;
    puts("ready");
    fflush(stdout);
    char letter;
    while (read(0, &letter, 1) == 1) {
        pid_t child = fork();
        if (child == 0 && letter == 'k')
            for (;;)
                pause();
        if (child == 0)
            _exit(0);
        if (letter == 'k') {
            printf("%d\n", (int)child);
        } else {
            waitpid(child, NULL, 0);
            puts("done");
        }
        fflush(stdout);
    }
    return 0;
}
