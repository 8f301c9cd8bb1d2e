// odtest: expect=froze timeout=60 live=no
/*
 * mremap() with the old length 0 doubles a shared mapping. Where its double comes to lie, frozen
 * memory may have been that the C library has unmapped by itself: the double is no frozen memory.
 * What is given up in it stays, as in all shared memory, and both still show the same.
 */
#include "odtest.h"

#define SIZE (32 * OD_MB)

int main(void)
{
    char *shared = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    memset(shared, 7, SIZE);
    int in_place = 0;
    for (int round = 0; round < 8; round++) {
        char *block = malloc(SIZE);
        CHECK(block, "malloc");
        memset(block, 1, SIZE);
        pid_t pid = OK(fork());
        if (pid == 0)
            _exit(0);
        od_join(pid);
        uintptr_t start = (uintptr_t)block;
        free(block);
        char *twice = OK(mremap(shared, 0, SIZE, MREMAP_MAYMOVE));
        in_place += (uintptr_t)twice < start + SIZE && (uintptr_t)twice + SIZE > start;
        /* The second time at a fixed address, over itself. */
        if (round % 2)
            twice = OK(mremap(shared, 0, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, twice));
        OK(madvise(twice, SIZE, MADV_DONTNEED));
        OK(madvise(twice + 3 * OD_PAGE, 2 * OD_PAGE, MADV_DONTNEED));
        for (size_t i = 0; i < SIZE; i += OD_PAGE)
            CHECK(twice[i] == 7 + round, "round %d: byte %zu holds %d", round, i, twice[i]);
        memset(shared, 8 + round, SIZE);
        CHECK(twice[5] == 8 + round, "round %d: no longer the same memory", round);
        OK(munmap(twice, SIZE));
    }
    if (in_place == 0)
        fprintf(stderr, "no double came to lie where frozen memory was\n");
    return od_done();
}
