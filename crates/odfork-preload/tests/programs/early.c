/* A library whose constructor forks before libodfork.so has read its options, and the program that
 * uses it (EARLY_PROGRAM). Says how many mappings show an image after 60 forks of 64 MB in small
 * pages: with ODFORK_FREEZE=never there is none. */
#ifdef EARLY_PROGRAM
#include <stdio.h>

int images(void);

int main(void)
{
    printf("%d\n", images());
    return 0;
}
#else
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int images(void);

__attribute__((constructor)) static void before_all_others(void)
{
    const size_t bytes = 64 << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    memset(memory, 1, bytes);
    for (int i = 0; i < 60; i++) {
        memory[i * 4096] = (char)i;
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0 || waitpid(child, NULL, 0) != child)
            abort();
    }
}

int images(void)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found += strstr(line, "(deleted)") != NULL;
    if (maps)
        fclose(maps);
    return found;
}
#endif
