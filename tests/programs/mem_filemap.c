/* Private mappings of files: dirty pages are the process's own, clean pages show the file, and
 * pages behind a truncated end give SIGBUS, dirty or not. The frozen neighbour must not change
 * that. */
// odtest: timeout=60
#include "odtest.h"
#include <setjmp.h>

#define SIZE (16 * OD_MB)

static char *map;
static int file;
static sigjmp_buf back;

static int is_dirty(size_t page) { return page % 4 == 1; }

static void verify(uint64_t gen_file, uint64_t gen_own, size_t pages, const char *who)
{
    for (size_t page = 0; page < pages; page++)
        od_verify_at(map + page * OD_PAGE, OD_PAGE, is_dirty(page) ? gen_own : gen_file, page * 512,
                     who);
}

static void write_file(uint64_t gen)
{
    static uint64_t buffer[OD_MB / 8];
    for (size_t at = 0; at < SIZE; at += OD_MB) {
        od_fill_at(buffer, OD_MB, gen, at / 8);
        CHECK(pwrite(file, buffer, OD_MB, at) == (ssize_t)OD_MB, "pwrite: %s", strerror(errno));
    }
}

static void write_own(uint64_t gen)
{
    for (size_t page = 0; page < SIZE / OD_PAGE; page++)
        if (is_dirty(page))
            od_fill_at(map + page * OD_PAGE, OD_PAGE, gen, page * 512);
}

struct view {
    uint64_t file, own;
};

static void child(void *argument)
{
    struct view *v = argument;
    verify(v->file, v->own, SIZE / OD_PAGE, "child");
    write_own(999);
    od_refreeze();
    verify(v->file, 999, SIZE / OD_PAGE, "child after its own writes");
}

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    siglongjmp(back, info->si_code == BUS_ADRERR ? 1 : 2);
}

static const char *touch(size_t page)
{
    int caught = sigsetjmp(back, 1);
    if (caught == 0) {
        *(volatile char *)(map + page * OD_PAGE);
        return "readable";
    }
    return caught == 1 ? "SIGBUS, BUS_ADRERR" : "SIGBUS, another code";
}

int main(void)
{
    char *neighbour = od_map(SIZE);
    file = OK(open("mem_filemap.file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    unlink("mem_filemap.file");
    write_file(1);
    od_fill(neighbour, SIZE, 50);
    map = OK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0));
    struct view v = {1, 2};
    write_own(2);
    for (int round = 0; round < 4; round++) {
        od_run_child(child, &v);
        v.own += 10;
        write_own(v.own);
        if (round % 2)
            od_refreeze();
        v.file += 100;
        write_file(v.file); /* clean pages of a private mapping follow the file */
        verify(v.file, v.own, SIZE / OD_PAGE, "parent");
    }
    OK(madvise(map + OD_PAGE, OD_PAGE, MADV_DONTNEED));
    od_verify_at(map + OD_PAGE, OD_PAGE, v.file, 512, "DONTNEED shows the file again");
    od_fill_at(map + OD_PAGE, OD_PAGE, v.own, 512);
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGBUS, &action, NULL));
    OK(ftruncate(file, SIZE / 2));
    verify(v.file, v.own, SIZE / OD_PAGE / 2, "before the end");
    printf("clean page behind the end: %s\n", touch(SIZE / OD_PAGE - 4));
    printf("dirty page behind the end: %s\n", touch(SIZE / OD_PAGE - 3));
    od_verify(neighbour, SIZE, 50, "neighbour");
    close(file);
    return od_done();
}
