/* What the runtime remembers of addresses may be out of date: the C library unmaps and maps by
 * itself. Bytes in a pipe outlive the memory they came from, and arguments that the kernel does not
 * look at may hold anything. */
// odtest: expect=froze user=any timeout=60 mem=300
#include "odtest.h"
#include <malloc.h>

#define SIZE (24 * OD_MB)

static void forks(int count)
{
    while (count-- > 0) {
        pid_t pid = od_fork();
        if (pid == 0)
            _exit(0);
        od_join(pid);
    }
    od_refreeze();
}

/* A block without access in its middle is freed; the next one lies there, is frozen, and is given
 * up. */
static void access_of_an_earlier_block(void)
{
    char *block = malloc(SIZE);
    od_fill(block, SIZE - OD_PAGE, 1);
    forks(2);
    char *middle = (char *)(((uintptr_t)block + SIZE / 2) & -OD_PAGE);
    OK(mprotect(middle, OD_MB, PROT_NONE));
    free(block);
    block = malloc(SIZE);
    od_fill(block, SIZE - OD_PAGE, 2);
    forks(2);
    OK(madvise(middle, 2 * OD_MB, MADV_DONTNEED));
    od_verify_zero(middle, 2 * OD_MB, "given up where no access was before");
    memset(middle, 3, 2 * OD_MB);
    free(block);
}

/* mremap() takes its fifth argument only with MREMAP_FIXED. */
static void unused_argument(void)
{
    char *memory = od_map(SIZE);
    od_fill(memory, SIZE, 4);
    forks(2);
    char *grown = (char *)syscall(SYS_mremap, memory, SIZE, 2 * SIZE, MREMAP_MAYMOVE, -1L);
    CHECK(grown != MAP_FAILED, "mremap: %s", strerror(errno));
    od_verify(grown, SIZE, 4, "moved");
    od_verify_zero(grown + SIZE, SIZE, "grown");
    OK(munmap(grown, 2 * SIZE));
}

/* Pages lent to a pipe stay as they are when the memory around them goes. */
static void in_a_pipe(void)
{
    char *memory = od_map(SIZE), seen[4 * OD_PAGE];
    int ends[2];
    od_fill(memory, SIZE, 5);
    forks(2);
    OK(pipe(ends));
    char *lent = memory + SIZE / 2 + 8 * OD_PAGE;
    struct iovec part = { lent, sizeof seen };
    CHECK(vmsplice(ends[1], &part, 1, 0) == (ssize_t)sizeof seen, "vmsplice: %s", strerror(errno));
    OK(munmap(memory, SIZE / 2));
    OK(munmap(memory + SIZE / 2, SIZE / 2));
    forks(3);
    CHECK(read(ends[0], seen, sizeof seen) == (ssize_t)sizeof seen, "short");
    od_verify_at(seen, sizeof seen, 5, (SIZE / 2 + 8 * OD_PAGE) / 8, "in the pipe");
    close(ends[0]);
    close(ends[1]);
}

/* A move onto frozen memory that is refused, and one with garbage behind it. Older kernels
 * unmap the whole target before they look at the source: nothing else may lie there. */
static void refused_move(void)
{
    char *target = od_map(2 * SIZE), *source = od_map(SIZE);
    od_fill(target, SIZE, 6);
    od_fill(source, SIZE, 7);
    forks(2);
    CHECK(mremap(source, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, target + 1) == MAP_FAILED,
          "unaligned");
    OK(munmap(source + SIZE / 2, OD_MB));
    CHECK(mremap(source, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == MAP_FAILED,
          "over a hole");
    CHECK(madvise(target + OD_MB, OD_MB, MADV_DONTNEED) == 0 || errno == ENOMEM, "%s",
          strerror(errno));
    for (size_t i = 0; i < OD_MB; i += OD_PAGE) {
        unsigned char in_core;
        if (mincore(target + OD_MB + i, OD_PAGE, &in_core) == 0)
            od_verify_zero(target + OD_MB + i, OD_PAGE, "target given up");
    }
    OK(munmap(source, SIZE));
    OK(munmap(target, 2 * SIZE));
}

int main(void)
{
    mallopt(M_MMAP_THRESHOLD, OD_MB);
    access_of_an_earlier_block();
    unused_argument();
    in_a_pipe();
    refused_move();
    return od_done();
}
