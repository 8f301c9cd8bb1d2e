// odtest: expect=froze timeout=60 mem=160
/*
 * Frozen memory stays in the page tables of its process when a later pass holds the threads and
 * refreezes other memory: what counts as resident does not fall, and a child that reads the memory
 * does not have it as its own (Redis takes such pages for copies).
 */
#include "odtest.h"
#include <pthread.h>

static const size_t BYTES = 48 * OD_MB;
static const int ROUNDS = 12;

static void *sleeper(void *unused)
{
    pause();
    return unused;
}

/* Two regions with nothing between them, so that they are two mappings. */
static void regions(char **still, char **busy)
{
    const int how = MAP_PRIVATE | MAP_ANONYMOUS, access = PROT_READ | PROT_WRITE;
    char *room = OK(mmap(NULL, 2 * BYTES + 6 * OD_MB, PROT_NONE, how, -1, 0));
    room = (char *)(((uintptr_t)room + 2 * OD_MB - 1) & ~(uintptr_t)(2 * OD_MB - 1));
    *still = OK(mmap(room, BYTES, access, how | MAP_FIXED, -1, 0));
    *busy = OK(mmap(room + BYTES + 2 * OD_MB, BYTES, access, how | MAP_FIXED, -1, 0));
    memset(*still, 1, BYTES);
    memset(*busy, 2, BYTES);
}

/* Kilobytes of `field` in the mappings of a region. */
static size_t kilobytes(const char *region, const char *field)
{
    char line[512], format[64];
    size_t sum = 0, begin, end, value;
    int within = 0;
    snprintf(format, sizeof format, "%s: %%zu", field);
    FILE *file = fopen("/proc/self/smaps", "re");
    CHECK(file, "no smaps");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%zx-%zx ", &begin, &end) == 2)
            within = begin < (size_t)region + BYTES && end > (size_t)region;
        else if (within && sscanf(line, format, &value) == 1)
            sum += value;
    }
    fclose(file);
    return sum;
}

/* Reads all of it, and tells what of it counts as the child's own. */
static int own_in_child(const char *region)
{
    unsigned sum = 0;
    for (size_t at = 0; at < BYTES; at += OD_PAGE)
        sum += (unsigned char)region[at];
    CHECK(sum == BYTES / OD_PAGE, "the child read %u", sum);
    return kilobytes(region, "Private_Dirty") > BYTES / 1024 / 4;
}

int main(void)
{
    pthread_t thread;
    char *still, *busy;
    int counted = 0, status;
    regions(&still, &busy);
    CHECK(pthread_create(&thread, NULL, sleeper, NULL) == 0, "no thread");
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t at = 0; at < BYTES; at += 16 * OD_PAGE)
            busy[at] = (char)round;
        pid_t child = OK(fork());
        if (child == 0)
            _exit(own_in_child(still));
        OK(waitpid(child, &status, 0));
        counted += status != 0;
        size_t resident = kilobytes(still, "Rss");
        CHECK(resident >= BYTES / 1024 / 4 * 3, "round %d: %zu KB are resident", round, resident);
    }
    CHECK(counted == 0, "in %d children memory that was read counts as their own", counted);
    printf("resident: all, of children: none\n");
    return od_done();
}
