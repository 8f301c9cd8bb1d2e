// odtest: expect=any timeout=60 mem=64
/*
 * Linux AIO by raw calls: requests in flight into the region while the process forks, freezes and
 * folds; with O_DIRECT where the file system has it (else they complete at once). Also the
 * completion ring, which the kernel maps into the process and writes into, and the context, which
 * children must not see.
 */
#include "proc_region.h"
#include <linux/aio_abi.h>

enum { DEPTH = 8, BLOCK = 128 * 1024, ROUNDS = 60 };
static const size_t BYTES = 16 * OD_MB, FILE_BYTES = 8 * OD_MB;
static unsigned char *region;
static int file;

static void make_file(void)
{
    char name[] = "aio.XXXXXX";
    int fd = OK(mkstemp(name));
    od_fill(region, FILE_BYTES, 41);
    CHECK(write(fd, region, FILE_BYTES) == (ssize_t)FILE_BYTES, "write: %s", strerror(errno));
    OK(fsync(fd));
    file = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file < 0)
        file = OK(open(name, O_RDONLY | O_CLOEXEC));
    OK(unlink(name));
    close(fd);
}

static void act(int round)
{
    if (round % 4 == 1)
        od_freeze();
    if (round % 4 == 2)
        od_refreeze();
    if (round % 8 == 7)
        od_thaw();
}

int main(void)
{
    aio_context_t context = 0;
    struct iocb cb[DEPTH], *list[DEPTH];
    struct io_event event[DEPTH];
    uint32_t random = 41;
    if (syscall(SYS_io_setup, DEPTH, &context) != 0) {
        if (errno == ENOSYS || errno == EAGAIN)
            od_skip("io_setup: %s; needs CONFIG_AIO and fs.aio-max-nr", strerror(errno));
        FAIL("io_setup: %s", strerror(errno));
    }
    region = od_map(BYTES);
    make_file();
    for (int round = 0; round < ROUNDS; round++) {
        size_t from[DEPTH];
        unsigned char *to[DEPTH];
        for (int i = 0; i < DEPTH; i++) {
            from[i] = od_random(&random) % (FILE_BYTES / BLOCK) * BLOCK;
            to[i] = region + (size_t)i * 2 * OD_MB + od_random(&random) % 400 * OD_PAGE;
            memset(to[i], 0xEE, BLOCK);
            memset(&cb[i], 0, sizeof cb[i]);
            cb[i].aio_lio_opcode = IOCB_CMD_PREAD;
            cb[i].aio_fildes = (uint32_t)file;
            cb[i].aio_buf = (uintptr_t)to[i];
            cb[i].aio_nbytes = BLOCK;
            cb[i].aio_offset = (int64_t)from[i];
            cb[i].aio_data = (uint64_t)i;
            list[i] = &cb[i];
        }
        CHECK(syscall(SYS_io_submit, context, (long)DEPTH, list) == DEPTH, "io_submit: %s",
              strerror(errno));
        act(round);
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (pid == 0) {
            struct timespec none = { 0, 0 };
            long n = syscall(SYS_io_getevents, context, 0L, 1L, event, &none);
            CHECK(n == -1 && errno == EINVAL, "the child has the context: %ld", n);
            _exit(0);
        }
        act(round + 1);
        for (int got = 0; got < DEPTH;) {
            long n = syscall(SYS_io_getevents, context, 1L, (long)DEPTH, event, NULL);
            CHECK(n > 0, "io_getevents: %s", strerror(errno));
            for (long k = 0; k < n; k++)
                CHECK(event[k].res == BLOCK, "round %d: request %llu gave %lld", round,
                      event[k].data, event[k].res);
            got += (int)n;
        }
        for (int i = 0; i < DEPTH; i++)
            od_verify_at(to[i], BLOCK, 41, from[i] / 8, "delivered by AIO");
        od_join(pid);
        for (int i = 0; i < DEPTH; i++)
            od_verify_at(to[i], BLOCK, 41, from[i] / 8, "delivered by AIO, after the child");
    }
    OK(syscall(SYS_io_destroy, context));
    close(file);
    return od_done();
}
