/* A mapping that the kernel refuses may take the old one with it (before Linux 6.12: one of a
 * sealed file does). Whatever it left, frozen memory must show the same, and take advice in the
 * same way. */
// odtest: expect=froze user=any timeout=60 mem=300
#include "odtest.h"

#define SIZE (16 * OD_MB)
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static void nothing(void *argument) { (void)argument; }

/* Refused when everything else is done: the file may not be written by mappings any more. */
static void refuse(char *at, size_t length)
{
    int file = memfd_create("sealed", MFD_ALLOW_SEALING);
    OK(ftruncate(file, (off_t)length));
    OK(fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
    void *answer = mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    CHECK(answer == MAP_FAILED, "a sealed file was mapped");
    printf("refused: %s\n", strerror(errno));
    close(file);
}

/* Says what the call answered. */
static void tell(const char *what, long answer)
{
    printf("%s: %s\n", what, answer == -1 ? strerror(errno) : "done");
}

int main(void)
{
    char *memory = od_map(SIZE), *hole = memory + 4 * OD_MB;
    od_fill(memory, SIZE, 1);
    od_freeze();
    od_run_child(nothing, NULL);
    refuse(hole, OD_MB);
    unsigned char there[OD_MB / OD_PAGE];
    int kept = mincore(hole, OD_MB, there) == 0;
    printf("the old mapping: %s\n", kept ? "kept" : "gone");
    if (kept)
        od_verify_at(hole, OD_MB, 1, 4 * OD_MB / 8, "kept");
    tell("advice for a part", madvise(hole + OD_PAGE, 8 * OD_PAGE, MADV_DONTNEED));
    tell("advice around it", madvise(hole - OD_MB, 3 * OD_MB, MADV_DONTNEED));
    tell("moved", (long)mremap(hole, OD_MB, 2 * OD_MB, MREMAP_MAYMOVE));
    tell("there now", mincore(hole, OD_PAGE, there));
    od_verify(memory, 3 * OD_MB, 1, "before it");
    od_verify_at(memory + 6 * OD_MB, SIZE - 6 * OD_MB, 1, 6 * OD_MB / 8, "behind it");
    od_refreeze();
    od_run_child(nothing, NULL);
    od_verify(memory, 3 * OD_MB, 1, "before it, refrozen");
    return od_done();
}
