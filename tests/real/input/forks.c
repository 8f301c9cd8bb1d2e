/* 48 MB on the heap and in .data, children that check and change them, a sum per child; prints its
 * arguments and identity, so that a launcher that changes anything about the start shows. "killed"
 * ends it by a signal. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 32 << 20, TABLE = 4 << 20 };

static unsigned table[TABLE] = {1, 2, 3};

static unsigned sum(const unsigned char *bytes)
{
    unsigned h = 5381;
    for (size_t i = 0; i < SIZE; i += 4)
        h = h * 33 + bytes[i];
    for (size_t i = 0; i < TABLE; i += 17)
        h = h * 33 + table[i];
    return h;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++)
        printf("argument %d %s\n", i, argv[i]);
    printf("uid %d euid %d\n", (int)getuid(), (int)geteuid());
    if (argc > 1 && strcmp(argv[1], "stdin") == 0) {
        char line[64];
        printf("read %s", fgets(line, sizeof line, stdin) ? line : "nothing\n");
    }
    unsigned char *bytes = malloc(SIZE);
    if (!bytes)
        return 2;
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 4096);
    for (int child = 0; child < 10; child++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            unsigned before = sum(bytes);
            memset(bytes + child * 1000000, child, 500000);
            table[child * 1000] = child;
            printf("child %d %08x %08x\n", child, before, sum(bytes));
            exit(child);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        printf("status %d\n", WEXITSTATUS(status));
        bytes[child * 4096 * 64] ^= 0x5a;
    }
    printf("parent %08x\n", sum(bytes));
    if (argc > 1 && strcmp(argv[1], "killed") == 0)
        raise(SIGTERM);
    return argc + 4;
}
