/* Bugs that AddressSanitizer must report, each in a forked child of a process with 96 MB in blocks
 * of many sizes; and rounds of correct use between, which it must not report.
 *
 *   asan_bugs FOLDER    the report of bug N goes to FOLDER/N; how its child ended, to stdout */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 6000, LARGE = 40, ROUNDS = 30 };
static const size_t large = 1 << 20;

static unsigned char *block[BLOCKS], *big[LARGE], global[100];
static unsigned char *freed_before, *freed_big;
static volatile size_t at; /* the compiler must not see the bugs */
static volatile unsigned char sink;

static size_t length(int i) { return 500 + (size_t)i * 7919 % 18000; }
static unsigned char fill(int i) { return (unsigned char)(i * 31 + 7); }

static unsigned char *make(size_t bytes, unsigned char value)
{
    unsigned char *new = malloc(bytes);
    if (!new)
        exit(2);
    return memset(new, value, bytes);
}

static void check(const unsigned char *bytes, size_t count, unsigned char value)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value) {
            printf("wrong byte %zu: %d, not %d\n", i, bytes[i], value);
            fflush(stdout);
            _exit(3);
        }
}

static void check_all(void)
{
    for (int i = 0; i < BLOCKS; i++)
        check(block[i], length(i), fill(i));
    for (int i = 0; i < LARGE; i++)
        check(big[i], large, fill(i));
}

/* Correct: gives back, takes again, large and small; what calloc gives is zero. */
static void use(int round)
{
    for (int i = round % 7; i < BLOCKS; i += 13) {
        free(block[i]);
        block[i] = make(length(i), fill(i));
        unsigned char *zeros = calloc(1, length(i));
        check(zeros, length(i), 0);
        free(zeros);
    }
    for (int i = round % 5; i < LARGE; i += 5) {
        free(big[i]);
        unsigned char *zeros = calloc(1, large);
        check(zeros, large, 0);
        free(zeros);
        big[i] = make(large, fill(i));
        big[i] = realloc(big[i], large * 2);
        big[i] = realloc(big[i], large);
    }
}

static void stack_overflow(void)
{
    unsigned char text[64];
    memset(text, 1, sizeof text);
    text[at + 64] = 2;
    sink = text[at];
}

static unsigned char *of_a_scope(void)
{
    unsigned char *volatile kept;
    {
        unsigned char text[32];
        memset(text, 1, sizeof text);
        kept = text;
    }
    return kept + (kept[at] & 0);
}

static void bug(int n)
{
    unsigned char *own = make(100, 1);
    switch (n) {
    case 0: own[at + 100] = 1; break;
    case 1: sink = own[at - 1]; break;
    case 2: sink = block[17][at + length(17)]; break;
    case 3: block[4000][at + length(4000) + 3] = 1; break;
    case 4: sink = big[3][at + large]; break;
    case 5: big[4][at - 1] = 1; break;
    case 6: free(own), sink = own[at + 5]; break;
    case 7: free(block[99]), block[99][at] = 1; break;
    case 8: free(big[7]), sink = big[7][at + 4096]; break;
    case 9: sink = freed_before[at + 9]; break;
    case 10: freed_big[at + 9] = 1; break;
    case 11: free(freed_before); break;
    case 12: free(block[5]), free(block[5]); break;
    case 13: free(block[6] + 16 + at); break;
    case 14: free(&global[at]); break;
    case 15: sink = global[at + 100]; break;
    case 16: stack_overflow(); break;
    case 17: sink = *of_a_scope(); break;
    case 18: memcpy(own, block[20], at + 120); break;
    case 19: memset(block[21], 0, at + length(21) + 1); break;
    case 20: sink = (unsigned char)strlen((char *)memset(block[22], 'x', length(22))); break;
    case 21: block[23] = realloc(block[23], 30), sink = block[23][at + 40]; break;
    case 22: free(big[8]), free(big[8]); break;
    case 23: sink = *(volatile unsigned char *)(at + 8); break;
    }
    printf("bug %d was not seen\n", n);
    fflush(stdout);
    _exit(4);
}

static void in_child(int n, const char *folder)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (n < 0) {
            use(n + 1000);
            check_all();
            _exit(0);
        }
        char path[512];
        snprintf(path, sizeof path, "%s/%d", folder, n);
        int report = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        dup2(report, 2);
        bug(n);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(2);
    printf("%d: %x\n", n, status);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    for (int i = 0; i < BLOCKS; i++)
        block[i] = make(length(i), fill(i));
    for (int i = 0; i < LARGE; i++)
        big[i] = make(large, fill(i));
    freed_before = make(777, 3);
    free(freed_before);
    freed_big = make(large, 3);
    free(freed_big);
    for (int n = 0; n < 24; n++)
        in_child(n, argv[1]);
    for (int round = 0; round < ROUNDS; round++) {
        use(round);
        check_all();
        in_child(-1 - round, argv[1]);
    }
    /* once more, behind all that was given back since */
    for (int n = 0; n < 24; n++)
        in_child(n, argv[1]);
    return 0;
}
