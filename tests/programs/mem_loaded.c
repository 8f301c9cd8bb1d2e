// odtest: expect=froze timeout=60 live=no slices=no
/*
 * Code that gives memory up by an instruction of its own comes into the process after the freeze.
 * The pass that finds it may be one that only gives memory back: all memory is thawed then too, so
 * that the code never brings old content back.
 */
#include "odtest.h"

#define SIZE (64 * OD_MB)

#ifdef __x86_64__
/* madvise(rdi, rsi, MADV_DONTNEED) */
static const unsigned char CODE[] = { 0xb8, 0x1c, 0, 0, 0, 0xba, 4, 0, 0, 0, 0x0f, 0x05, 0xc3 };
#else
/* mov x2, 4; mov x8, 233; svc 0; ret */
static const unsigned char CODE[] = { 0x82, 0, 0x80, 0xd2, 0x28, 0x1d, 0x80, 0xd2,
                                      1,    0, 0,    0xd4, 0xc0, 3,    0x5f, 0xd6 };
#endif

int main(void)
{
    char name[] = "/tmp/odtest-code-XXXXXX";
    int file = OK(mkstemp(name));
    OK(unlink(name));
    OK(ftruncate(file, OD_PAGE));
    CHECK(pwrite(file, CODE, sizeof CODE, 0) == sizeof CODE, "pwrite: %s", strerror(errno));
    char *memory = od_map(SIZE);
    memset(memory, 1, SIZE);
    for (int i = 0; i < 3; i++) {
        pid_t pid = OK(fork());
        if (pid == 0)
            _exit(0);
        od_join(pid);
    }
    int rights = PROT_READ | PROT_EXEC;
    long (*give_up)(void *, size_t) = (long (*)(void *, size_t))OK(
        mmap(NULL, OD_PAGE, rights, MAP_PRIVATE, file, 0));
    OK(madvise(memory, SIZE / 2, MADV_DONTNEED));
    char *late = memory + SIZE / 2 + 5 * OD_PAGE;
    memset(late, 2, OD_PAGE);
    CHECK(give_up(late, OD_PAGE) == 0, "the call is refused");
    for (size_t i = 0; i < OD_PAGE; i++)
        CHECK(late[i] == 0, "byte %zu holds %d", i, late[i]);
    return od_done();
}
