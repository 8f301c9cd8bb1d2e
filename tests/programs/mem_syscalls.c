/* The kernel writes into frozen memory, and reads out of it, like the program itself would. */
// odtest: timeout=60
#include "odtest.h"
#include <sys/socket.h>
#include <sys/uio.h>

#define SIZE (16 * OD_MB)

static char *world;
static int file, direct;

static void read_whole(int fd, uint64_t gen, const char *who)
{
    for (size_t done = 0; done < SIZE;) {
        ssize_t got = pread(fd, world + done, SIZE - done, done);
        CHECK(got > 0, "%s: pread: %s", who, strerror(errno));
        done += got;
    }
    od_verify(world, SIZE, gen, who);
}

static void write_whole(uint64_t gen)
{
    od_verify(world, SIZE, gen, "before writing it out");
    for (size_t done = 0; done < SIZE;) {
        ssize_t put = pwrite(file, world + done, SIZE - done, done);
        CHECK(put > 0, "pwrite: %s", strerror(errno));
        done += put;
    }
    OK(fsync(file));
}

/* Through a socket, in scattered pieces, from one frozen half to the other. */
static void through_socket(uint64_t gen)
{
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    for (size_t at = 0; at < SIZE / 2; at += 64 * 1024) {
        struct iovec out[2] = {{world + at, 1000}, {world + at + 1000, 31768}};
        struct iovec in[2] = {{world + SIZE / 2 + at, 20000},
                              {world + SIZE / 2 + at + 20000, 12768}};
        CHECK(writev(pair[0], out, 2) == 32768, "writev: %s", strerror(errno));
        size_t got = 0;
        while (got < 32768) {
            ssize_t part = got == 0 ? readv(pair[1], in, 2)
                                    : read(pair[1], (char *)in[0].iov_base + got, 32768 - got);
            CHECK(part > 0, "readv: %s", strerror(errno));
            got += part;
        }
        od_verify_at(world + SIZE / 2 + at, 32768, gen, at / 8, "through a socket");
        od_fill_at(world + SIZE / 2 + at, 32768, gen, (SIZE / 2 + at) / 8);
    }
    close(pair[0]);
    close(pair[1]);
}

static void child(void *argument)
{
    uint64_t gen = *(uint64_t *)argument;
    od_verify(world, SIZE, gen, "child");
    read_whole(file, gen - 1, "child, read()");
    od_refreeze();
    od_verify(world, SIZE, gen - 1, "child after a fold");
    if (direct >= 0)
        read_whole(direct, gen - 1, "child, O_DIRECT");
    through_socket(gen - 1);
}

int main(void)
{
    world = od_map(SIZE);
    file = OK(open("mem_syscalls.file", O_RDWR | O_CREAT | O_EXCL, 0600));
    direct = open("mem_syscalls.file", O_RDONLY | O_DIRECT); /* not on every file system */
    unlink("mem_syscalls.file");
    od_fill(world, SIZE, 1);
    for (uint64_t gen = 2; gen < 8; gen++) {
        write_whole(gen - 1);
        od_fill(world, SIZE, gen);
        od_run_child(child, &gen);
        od_verify(world, SIZE, gen, "parent");
        through_socket(gen);
        if (gen % 2)
            od_refreeze();
        read_whole(direct >= 0 && gen % 3 == 0 ? direct : file, gen - 1, "parent, read()");
        od_run_child((void (*)(void *))od_refreeze, NULL);
        od_verify(world, SIZE, gen - 1, "parent, read and folded");
        od_fill(world, SIZE, gen);
    }
    close(file);
    if (direct >= 0)
        close(direct);
    return od_done();
}
