/* What packages are tried with: 64 MB, and three children that read it. Copied into roots that have
 * nothing of this checkout. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    char *memory = malloc(64 << 20);
    memset(memory, 1, 64 << 20);
    for (int i = 0; i < 3; i++) {
        if (fork() == 0)
            _exit(memory[i << 20] != 1);
        int status;
        if (wait(&status) < 0 || status)
            return 1;
    }
    return 0;
}
