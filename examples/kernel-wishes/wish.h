/* What the programs of docs/kernel-wishes.md share. Each says what it could not find out, and exits
 * with 1 if it could after all: then the kernel can more than the page says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define EXCLUSIVE (1ull << 56)

/* The condition is what the page says; else the program ends. */
#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, \
                    strerror(errno)); \
            exit(1); \
        } \
    } while (0)

static inline char *map(size_t bytes, int flags, int fd)
{
    char *at =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    EXPECT(at != MAP_FAILED);
    return at;
}

/* A file in memory of that many bytes, all 'f'. A memfd takes no lease, a file without a name does.
 */
static inline int file_of(size_t bytes)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    fd = fd < 0 ? memfd_create("wish", MFD_CLOEXEC) : fd;
    EXPECT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    char *at = map(bytes, MAP_SHARED, fd);
    memset(at, 'f', bytes);
    EXPECT(munmap(at, bytes) == 0);
    return fd;
}

/* The entry of /proc/self/pagemap. */
static inline uint64_t entry(const void *at)
{
    uint64_t value = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0 && pread(fd, &value, 8, (off_t)((uintptr_t)at / PAGE * 8)) == 8);
    close(fd);
    return value;
}

/* The number behind a word of a file of /proc, or the number of its lines. */
static inline long number(const char *path, const char *word)
{
    char line[512];
    long found = 0;
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (word == NULL)
            found++;
        else if (strncmp(line, word, strlen(word)) == 0)
            found = atol(line + strlen(word));
    }
    fclose(file);
    return found;
}
