// odtest: expect=any timeout=60 mem=64
/*
 * io_uring by raw calls: buffers registered in the region stay pinned, so what a later fixed read
 * delivers must be seen by the program, whether they were registered before the first fork, late,
 * or across a freeze, a fold or a thaw; also requests that wait in the ring (plain and fixed, on a
 * pipe) while the memory below them is frozen, and fixed writes that take their bytes from there.
 */
#include "proc_region.h"
#include "ring.h"
#include <sys/uio.h>

enum { ENTRIES = 16, BUFFER = 256 * 1024 };
static const size_t BYTES = 16 * OD_MB, FILE_BYTES = OD_MB;
static unsigned char *region;
static int file;

static void submit(int op, int fd, void *memory, unsigned bytes, uint64_t offset, int buffer)
{
    struct io_uring_sqe *e = next_entry();
    e->opcode = (uint8_t)op;
    e->fd = fd;
    e->addr = (uintptr_t)memory;
    e->len = bytes;
    e->off = offset;
    e->buf_index = (uint16_t)(buffer < 0 ? 0 : buffer);
    submit_entry();
}

/* Registers two buffers, at the start and beyond the middle of the region; not page-aligned on
 * purpose. */
static void register_buffers(struct iovec *v)
{
    v[0] = (struct iovec){ region + OD_MB + 512, BUFFER };
    v[1] = (struct iovec){ region + 9 * OD_MB + 4096 - 512, BUFFER };
    OK(syscall(SYS_io_uring_register, ring_fd, IORING_REGISTER_BUFFERS, v, 2));
}

static void unregister_buffers(void)
{
    OK(syscall(SYS_io_uring_register, ring_fd, IORING_UNREGISTER_BUFFERS, NULL, 0));
}

static void read_fixed(struct iovec *v, const char *when)
{
    for (int b = 0; b < 2; b++) {
        memset(v[b].iov_base, 0xEE, v[b].iov_len);
        submit(IORING_OP_READ_FIXED, file, v[b].iov_base, BUFFER, (uint64_t)b * BUFFER, b);
        int n = complete();
        CHECK(n == BUFFER, "%s: fixed read: %s", when, strerror(-n));
        od_verify_at(v[b].iov_base, BUFFER, 37, (size_t)b * BUFFER / 8, when);
    }
}

static void write_fixed(struct iovec *v, const char *when)
{
    static unsigned char back[BUFFER];
    for (int b = 0; b < 2; b++) {
        od_fill(v[b].iov_base, BUFFER, 38 + (uint64_t)b);
        submit(IORING_OP_WRITE_FIXED, file, v[b].iov_base, BUFFER,
               (uint64_t)FILE_BYTES / 2 + (uint64_t)b * BUFFER, b);
        int n = complete();
        CHECK(n == BUFFER, "%s: fixed write: %s", when, strerror(-n));
        CHECK(pread(file, back, BUFFER, (off_t)(FILE_BYTES / 2 + (size_t)b * BUFFER)) == BUFFER,
              "pread");
        od_verify(back, BUFFER, 38 + (uint64_t)b, when);
    }
}

/* Two requests wait for a pipe; what is below them is frozen, folded or thawed; then the pipe is
 * filled. */
static void wait_in_ring(struct iovec *v, void (*meanwhile)(const char *), const char *when)
{
    int a[2], b[2];
    char *plain = (char *)region + 5 * OD_MB + 4090, *fixed = v[1].iov_base;
    OK(pipe(a));
    OK(pipe(b));
    submit(IORING_OP_READ, a[0], plain, 1000, 0, -1);
    submit(IORING_OP_READ_FIXED, b[0], fixed, 1000, 0, 1);
    meanwhile(when);
    char text[1000];
    memset(text, 'x', sizeof text);
    OK(write(a[1], text, sizeof text));
    OK(write(b[1], text, sizeof text));
    for (int i = 0; i < 2; i++) {
        int n = complete();
        CHECK(n == 1000, "%s: read that waited: %s", when, strerror(-n));
    }
    CHECK(!memcmp(plain, text, 1000), "%s: what the waiting read delivered is lost", when);
    CHECK(!memcmp(fixed, text, 1000), "%s: what the waiting fixed read delivered is lost", when);
    close(a[0]), close(a[1]), close(b[0]), close(b[1]);
}

static void several_forks(const char *when)
{
    for (size_t i = 0; i < 4; i++) {
        volatile unsigned char *page = region + 12 * OD_MB + i * 40 * OD_PAGE;
        *page = *page;
        region_look(region + 13 * OD_MB, OD_MB, 36, when);
    }
}
static void frozen(const char *when) { several_forks(when), od_freeze(); }
static void folded(const char *when) { several_forks(when), od_refreeze(); }
static void thawed(const char *when) { od_thaw(), several_forks(when); }

static void use(struct iovec *v, const char *when)
{
    static const struct { void (*go)(const char *); const char *name;
    } MEANWHILE[] = {
        {several_forks, "forks"}, {frozen, "freeze"},       {folded, "fold"},
        {thawed, "thaw"},         {frozen, "freeze again"},
    };
    for (unsigned i = 0; i < sizeof MEANWHILE / sizeof *MEANWHILE; i++) {
        char what[80];
        snprintf(what, sizeof what, "%s, across %s", when, MEANWHILE[i].name);
        MEANWHILE[i].go(what);
        read_fixed(v, what);
        write_fixed(v, what);
        wait_in_ring(v, MEANWHILE[i].go, what);
    }
}

int main(void)
{
    struct iovec v[2];
    char name[] = "uring.XXXXXX";
    make_ring(ENTRIES);
    file = OK(mkstemp(name));
    OK(unlink(name));
    region = od_map(BYTES);
    od_fill(region, FILE_BYTES, 37);
    CHECK(write(file, region, FILE_BYTES) == (ssize_t)FILE_BYTES, "write");
    od_fill(region, 13 * OD_MB, 40);
    od_fill(region + 13 * OD_MB, 3 * OD_MB, 36);
    register_buffers(v);
    use(v, "registered early");
    unregister_buffers();
    od_freeze();
    several_forks("between");
    register_buffers(v);
    use(v, "registered late");
    unregister_buffers();
    od_refreeze();
    several_forks("at the end");
    region_check(region + 13 * OD_MB, OD_MB, 36, 1, "at the end");
    /* no od_done(): a worker thread of the ring may still be there */
    printf("every request delivered\n");
    return 0;
}
