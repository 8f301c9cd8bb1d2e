// odtest: expect=any timeout=60 mem=64
/*
 * O_DIRECT reads of a file into the region, by two threads, while the main thread forks, freezes
 * and folds: the device writes into pages that were looked up before. Skipped where the file system
 * of the working directory has none.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>

enum { FORKS = 80, BLOCK = 65536 };
static const size_t BYTES = 16 * OD_MB, FILE_BYTES = 8 * OD_MB;
static unsigned char *region;
static atomic_int stop;
static _Atomic uint64_t reads;
static int file;

static void *read_directly(void *arg)
{
    size_t half = (size_t)(uintptr_t)arg;
    unsigned char *part = region + half * (BYTES / 2);
    uint32_t random = (uint32_t)half + 1;
    while (!atomic_load(&stop)) {
        size_t from = od_random(&random) % (FILE_BYTES / BLOCK) * BLOCK;
        size_t to = od_random(&random) % ((BYTES / 2 - BLOCK) / OD_PAGE) * OD_PAGE;
        size_t want = (od_random(&random) % 16 + 1) * OD_PAGE;
        memset(part + to, 0xEE, want);
        ssize_t n = pread(file, part + to, want, (off_t)from);
        CHECK(n == (ssize_t)want, "direct read: %zd, %s", n, strerror(errno));
        od_verify_at(part + to, want, 35, from / 8, "direct read");
        atomic_fetch_add(&reads, 1);
    }
    return NULL;
}

static void make_file(void)
{
    char name[] = "direct_io.XXXXXX";
    int fd = OK(mkstemp(name));
    void *text = region_new(FILE_BYTES, 35);
    CHECK(write(fd, text, FILE_BYTES) == (ssize_t)FILE_BYTES, "write: %s", strerror(errno));
    OK(fsync(fd));
    OK(munmap(text, FILE_BYTES));
    file = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
    OK(unlink(name));
    if (file < 0)
        od_skip("no O_DIRECT in the working directory (%s): run on ext4, xfs or btrfs",
                strerror(errno));
    close(fd);
}

int main(void)
{
    pthread_t thread[2];
    make_file();
    region = region_new(BYTES, 36);
    for (uintptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&thread[i], NULL, read_directly, (void *)i) == 0, "pthread_create");
    for (int i = 0; i < FORKS; i++) {
        uint64_t before = atomic_load(&reads);
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (pid == 0)
            _exit(0);
        od_join(pid);
        if (i % 20 == 9)
            od_refreeze();
        if (i % 20 == 15)
            od_thaw();
        for (int k = 0; k < 200 && atomic_load(&reads) < before + 4; k++)
            usleep(100);
    }
    atomic_store(&stop, 1);
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    CHECK(atomic_load(&reads) > FORKS, "hardly any read");
    close(file);
    return od_done();
}
