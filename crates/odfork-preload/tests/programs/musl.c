/* A program for musl: what the library wraps still does what it did. Prints the child's status. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *nothing(void *argument)
{
    return argument;
}

int main(void)
{
    size_t size = 4 << 20;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[size - 1] = 7;
    char *heap = realloc(malloc(1 << 20), 8 << 20);
    pthread_t thread;
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!heap || fcntl(file, F_GETFD) != FD_CLOEXEC ||
        pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL) ||
        madvise(memory, 4096, MADV_DONTNEED))
        return 1;
    free(heap);
    pid_t child = fork();
    if (child == 0)
        _exit(memory[size - 1]);
    int status = -1;
    waitpid(child, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
    return 0;
}
