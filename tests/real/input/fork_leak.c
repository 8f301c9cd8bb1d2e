/* Forks beside 8 MB; each child reads one byte behind a block, for valgrind to find. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    size_t size = 8 << 20;
    char *memory = malloc(size);
    memset(memory, 3, size);
    for (int round = 0; round < 4; round++) {
        pid_t child = fork();
        if (child == 0) {
            unsigned sum = ((volatile char *)memory)[size] == 77;
            for (size_t i = 0; i < size; i += 512)
                sum += memory[i];
            _exit(sum % 251);
        }
        int status;
        waitpid(child, &status, 0);
        printf("%d\n", status);
        memory[round * 9000] = round;
    }
    return 0;
}
